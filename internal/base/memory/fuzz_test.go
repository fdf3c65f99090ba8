package memory_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
)

// FuzzBody: whatever a body holds, its reader gets the bytes that were sent, in order, or an error. The
// largest message was counted before the reader got it, and all is given back at the end.
func FuzzBody(f *testing.F) {
	f.Add("application/grpc", "gzip", append(framed(0, []byte("one")), framed(1, []byte("two"))...), uint16(60_000))
	f.Add("application/connect+json", "br", framed(1, []byte("one")), uint16(60_000))
	f.Add("application/grpc-web+proto", "", framed(128, nil)[:3], uint16(60_000))
	f.Add("application/grpc", "", []byte{0, 255, 255, 255, 255, 0}, uint16(60_000))
	f.Add("application/proto", "gzip", []byte{0x1f, 0x8b, 8}, uint16(60_000))
	f.Add("application/proto", "gzip", []byte("text"), uint16(10))
	const most = 4096
	f.Fuzz(func(t *testing.T, kind, encoding string, sent []byte, room uint16) {
		if len(sent) > 4*most {
			return
		}
		h := http.Header{"Content-Type": {kind}, "Content-Encoding": {encoding}}
		budget := memory.NewBudget(int64(room))
		share := budget.Share(int64(room))
		b := memory.NewBody(io.NopCloser(bytes.NewReader(sent)), h, share.Body(), most)
		got, err := io.ReadAll(b)
		var large *http.MaxBytesError
		var full *connect.Error
		switch {
		case !bytes.HasPrefix(sent, got), err == nil && len(got) != len(sent):
			t.Errorf("%q is read as %q, %v", sent, got, err)
		case err != nil && !errors.As(err, &large) && !errors.As(err, &full):
			t.Errorf("error %v", err)
		}
		largest := int64(len(got))
		if memory.Framed(h) {
			largest = 0
			for rest := got; len(rest) >= 5; {
				n := min(5+int64(binary.BigEndian.Uint32(rest[1:])), int64(len(rest)))
				largest, rest = max(largest, n), rest[n:]
			}
		}
		if counted := int64(room) - budget.Left(); counted < (limits.BodyCopies-1)*largest || counted > int64(room) {
			t.Errorf("%d bytes are counted, and its largest message has %d", counted, largest)
		}
		b.End()
		share.End()
		if budget.Left() != int64(room) {
			t.Errorf("%d of %d bytes are left", budget.Left(), room)
		}
	})
}
