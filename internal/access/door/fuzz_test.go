package door

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
)

// FuzzBodies: however a request brings its message, what its handler gets was counted before. The
// handler is Connect's own, so that nothing here has to know how it reads queries and headers.
func FuzzBodies(f *testing.F) {
	const most = 8 << 10
	bomb := func(n int) []byte {
		msg, err := proto.Marshal(&wrapperspb.BytesValue{Value: make([]byte, n)})
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(msg) // a buffer takes everything
		_ = z.Close()
		return b.Bytes()
	}
	large := bomb(most - 16)
	text := base64.RawURLEncoding.EncodeToString(large)
	f.Add(true, "connect=v1&encoding=proto&compression=gzip&base64=1&message="+text, "", "", "", []byte(nil))
	f.Add(true, "connect=v1&encoding=proto&%63ompression=gzip&base64=1&%6dessage="+text, "", "", "", []byte(nil))
	f.Add(true, "encoding=proto&compression=&compression=gzip&base64=1&message="+text, "", "", "", []byte(nil))
	f.Add(true, "encoding=proto;compression=gzip&message=x", "", "", "", []byte(nil))
	f.Add(false, "", "application/proto", "Content-Encoding", "gzip", large)
	f.Add(false, "", "application/connect+proto", "Connect-Content-Encoding", "gzip", append([]byte{1, 0, 0, 0, byte(len(large))}, large...))
	f.Add(false, "", "application/grpc", "Grpc-Encoding", "gzip", append([]byte{1, 0, 0, 0, byte(len(large))}, large...))
	f.Add(false, "", "application/grpc-web+proto", "grpc-encoding", "gzip", append([]byte{1, 0, 0, 0, byte(len(large))}, large...))
	f.Fuzz(func(t *testing.T, get bool, query, contentType, header, value string, sent []byte) {
		if len(query)+len(sent) > most {
			return // net/http refuses it
		}
		got := int64(-1)
		h := connect.NewUnaryHandler("/x", func(_ context.Context, req *connect.Request[wrapperspb.BytesValue]) (*connect.Response[emptypb.Empty], error) {
			got = int64(len(req.Msg.GetValue()))
			return connect.NewResponse(&emptypb.Empty{}), nil
		}, connect.WithReadMaxBytes(most), connect.WithIdempotency(connect.IdempotencyNoSideEffects))
		const room = 1 << 30
		d := &filter{cfg: Config{BodyBytes: most, BodyTime: time.Minute}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/x", bytes.NewReader(sent))
		if get {
			r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/x", http.NoBody)
		}
		r.URL = &url.URL{Path: "/x", RawQuery: query}
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		if header != "" {
			r.Header.Set(header, value)
		}
		counted := d.inURL(r)
		budget := memory.NewBudget(room)
		share := budget.Share(room)
		w := httptest.NewRecorder()
		if r.Body != http.NoBody {
			r.Body = d.body(w, r, http.NewResponseController(w), share)
		}
		h.ServeHTTP(w, r)
		if counted += room - budget.Left(); limits.BodyCopies*got > counted {
			t.Errorf("%d bytes were counted, and its handler got %d", counted, got)
		}
	})
}
