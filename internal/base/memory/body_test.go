package memory_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/iotest"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
)

// zip compresses data with gzip.
func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// framed is a message as streams have it.
func framed(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

func header(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return h
}

// TestBody checks what a body counts at its end, in each form, and that its reader gets it unchanged,
// however it arrives.
func TestBody(t *testing.T) {
	t.Parallel()
	const most = 10_000
	zeros := make([]byte, 9000)
	small := zip(t, zeros)
	one, two, three := bytes.Repeat([]byte("1"), 3000), bytes.Repeat([]byte("2"), 2000), bytes.Repeat([]byte("3"), 1000)
	grpc := header("Content-Type", "application/grpc", "Grpc-Encoding", "gzip")
	for name, tc := range map[string]struct {
		header http.Header
		body   []byte
		want   int64 // BodyCopies times the only message, or the rule for several
	}{
		"plain":                      {header(), one, 4 * 3000},
		"plain, empty":               {header(), nil, 0},
		"gzip":                       {header("Content-Encoding", "gzip"), small, 4 * (int64(len(small)) + 9000)},
		"gzip, larger than it may":   {header("Content-Encoding", "gzip"), zip(t, make([]byte, 2*most)), 4 * (int64(len(zip(t, make([]byte, 2*most)))) + most)},
		"gzip in parts":              {header("Content-Encoding", "gzip"), append(bytes.Clone(small), small...), 4 * (2*int64(len(small)) + most)},
		"gzip that is none":          {header("Content-Encoding", "gzip"), one, 4 * 3000},
		"gzip that ends early":       {header("Content-Encoding", "gzip"), small[:len(small)-8], 4 * (int64(len(small)-8) + 9000)},
		"unknown":                    {header("Content-Encoding", "br"), one, 4 * (3000 + most)},
		"two encodings":              {header("Content-Encoding", "br", "Grpc-Encoding", "gzip"), one, 4 * (3000 + most)},
		"a message":                  {header("Content-Type", "application/grpc"), framed(0, one), 4 * 3005},
		"a message, spelt otherwise": {header("Content-Type", " Application/Grpc-Web+proto; x=y"), framed(0, one), 4 * 3005},
		"a message in gzip":          {grpc, framed(1, small), 4 * (5 + int64(len(small)) + 9000)},
		"a plain one among gzip":     {grpc, framed(0, one), 4 * 3005},
		"gzip that is not announced": {header("Content-Type", "application/connect+proto"), framed(1, small), 4 * (5 + int64(len(small)))},
		"a message, unknown":         {header("Content-Type", "application/connect+proto", "Connect-Content-Encoding", "br"), framed(1, one), 4 * (3005 + most)},
		"a plain one among unknown":  {header("Content-Type", "application/connect+proto", "Connect-Content-Encoding", "br"), framed(0, one), 4 * 3005},
		"an empty message":           {grpc, framed(1, nil), 4 * 5},
		"half a prefix":              {grpc, framed(1, nil)[:3], 4 * 3},
		"half a message":             {grpc, framed(0, one)[:1005], 4 * 1005},
		"half a message in gzip":     {grpc, framed(1, small)[:20], 4 * 20},
		// The buffers of the largest, the last, and the one before it.
		"two messages":         {grpc, append(framed(0, one), framed(0, two)...), 3*3005 + 3005 + 2005},
		"three messages":       {grpc, append(append(framed(0, one), framed(0, two)...), framed(0, three)...), 3*3005 + 2005 + 1005},
		"two messages in gzip": {grpc, append(framed(1, small), framed(1, small)...), 5 * (5 + int64(len(small)) + 9000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, as := range map[string]func(io.Reader) io.Reader{
				"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "with its end": iotest.DataErrReader,
			} {
				budget := memory.NewBudget(1 << 20)
				share := budget.Share(1 << 20)
				b := memory.NewBody(io.NopCloser(as(bytes.NewReader(tc.body))), tc.header, share.Body(), most)
				got, err := io.ReadAll(iotest.HalfReader(b))
				if err != nil || !bytes.Equal(got, tc.body) {
					t.Errorf("%s: %d bytes, %v, want %d", how, len(got), err, len(tc.body))
				}
				if n := 1<<20 - budget.Left(); n != tc.want {
					t.Errorf("%s: %d bytes are counted, want %d", how, n, tc.want)
				}
				share.Settle(7)
				if n := 1<<20 - budget.Left(); n != min(7, tc.want) {
					t.Errorf("%s: %d bytes are counted after the request has decoded it", how, n)
				}
				b.End()
				share.End()
				if budget.Left() != 1<<20 {
					t.Errorf("%s: %d bytes are left", how, budget.Left())
				}
			}
		})
	}
}

// TestBodyWithoutRoom checks the errors of a message that has no room: one that may find it later, and
// one that never can.
func TestBodyWithoutRoom(t *testing.T) {
	t.Parallel()
	random := make([]byte, 900)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	stream := header("Content-Type", "application/grpc", "Grpc-Encoding", "gzip")
	bomb := zip(t, make([]byte, 900))
	for name, tc := range map[string]struct {
		header http.Header
		body   []byte
	}{
		"plain":             {header(), random},
		"gzip":              {header("Content-Encoding", "gzip"), bomb},
		"unknown":           {header("Content-Encoding", "br"), random[:1]},
		"a message":         {stream, framed(0, random)},
		"a message in gzip": {stream, framed(1, bomb)},
		"a second one":      {stream, append(framed(0, random[:10]), framed(1, bomb)...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := func(budget *memory.Budget) error {
				share := budget.Share(1 << 20)
				defer share.End()
				b := memory.NewBody(io.NopCloser(bytes.NewReader(tc.body)), tc.header, share.Body(), 1000)
				_, err := io.ReadAll(b)
				if _, again := b.Read(make([]byte, 1)); err != nil && !errors.Is(again, err) {
					t.Errorf("after %v it reads on: %v", err, again)
				}
				return err
			}
			code := func(budget *memory.Budget) connect.Code { return connect.CodeOf(read(budget)) }
			crowded := memory.NewBudget(1 << 20)
			other := crowded.Share(1 << 20)
			other.Take(1<<20 - 1000)
			if got := code(crowded); got != connect.CodeUnavailable {
				t.Errorf("next to others: %s", got)
			}
			other.End()
			if err := read(crowded); err != nil {
				t.Errorf("alone: %v", err)
			}
			if got := code(memory.NewBudget(1000)); got != connect.CodeResourceExhausted {
				t.Errorf("what never fits: %s", got)
			}
		})
	}
	b := memory.NewBody(io.NopCloser(bytes.NewReader(framed(0, random))), stream, memory.NewBudget(1<<20).Share(1<<20).Body(), 899)
	tooLarge := new(http.MaxBytesError)
	if _, err := io.ReadAll(b); !errors.As(err, &tooLarge) || tooLarge.Limit != 899 {
		t.Errorf("a message larger than may be: %v", err)
	}
}

// TestBodyOfAnyLength checks that a stream counts no more than its largest messages, and that nothing
// counts twice when it ends.
func TestBodyOfAnyLength(t *testing.T) {
	t.Parallel()
	const size, messages = 1000, 1000
	budget := memory.NewBudget(1 << 20)
	share := budget.Share((limits.BodyCopies + 1) * (size + 5))
	r, w := io.Pipe()
	go func() {
		for range messages {
			_, _ = w.Write(framed(0, make([]byte, size))) // a failure shows at the reader
		}
		_ = w.Close()
	}()
	b := memory.NewBody(r, header("Content-Type", "application/grpc"), share.Hold(), size)
	if !b.Between() {
		t.Error("it does not wait for a message")
	}
	if n, err := io.Copy(io.Discard, b); err != nil || n != messages*(size+5) {
		t.Errorf("%d bytes, %v", n, err)
	}
	b.Settle()
	if n := 1<<20 - budget.Left(); n != 2*(size+5) {
		t.Errorf("decoded, it counts %d bytes", n)
	}
	b.End()
	b.End()
	share.End()
	if budget.Left() != 1<<20 {
		t.Errorf("%d bytes are left", budget.Left())
	}
}

// TestPossible tells bytes that never fit from bytes that fit once other requests have ended.
func TestPossible(t *testing.T) {
	t.Parallel()
	b := memory.NewBudget(100)
	first, second := b.Share(60), b.Share(200)
	second.Take(10)
	for i, got := range []bool{
		first.Possible(60), !first.Possible(61) /* the request's bound */, second.Possible(90), !second.Possible(91), /* the budget */
		first.Take(60), !second.Take(90), second.Possible(90) /* only the first is in its way */, first.Possible(0), !first.Possible(1),
	} {
		if !got {
			t.Errorf("step %d", i)
		}
	}
	// It must leave a part to others, for ever.
	second.Leave(30)
	if !second.Possible(60) || second.Possible(61) || !second.Hold().Possible(60) || second.Hold().Possible(61) {
		t.Error("it counts on what it must leave")
	}
	if none := memory.Of(t.Context()); !none.Possible(math.MaxInt64) {
		t.Error("a context of no request counts")
	}
}
