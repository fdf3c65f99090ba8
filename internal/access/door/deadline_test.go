package door

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/base/memory"
)

// waiting is a connection that knows whether its reads have a deadline.
type waiting struct {
	http.ResponseWriter
	limited bool
	set     int
}

func (w *waiting) SetReadDeadline(at time.Time) error {
	w.limited = !at.IsZero()
	w.set++
	return nil
}

// TestDeadlinesOfBodies: a client has a time for a body, or for each message of a stream. The time that
// a handler takes between two messages, or after the end, does not count.
func TestDeadlinesOfBodies(t *testing.T) {
	t.Parallel()
	const message = "\x00\x00\x00\x00\x02ab"
	for name, tc := range map[string]struct {
		kind, body string
		http1      bool
		reads      []bool // after each read of 7 bytes, whether there is a deadline
	}{
		"a body":             {kind: "application/json", body: "0123456789", reads: []bool{true, true, false}},
		"a body over HTTP/1": {kind: "application/json", body: "0123456789", http1: true, reads: []bool{true, true, false}},
		"a message":          {kind: "application/grpc", body: message, reads: []bool{true, false, false}},
		"messages":           {kind: "application/grpc", body: message + message, reads: []bool{true, false, true, false, false}},
		"half a message":     {kind: "application/grpc", body: message + message[:6], reads: []bool{true, false, true, true, false}},
		// The server reads the rest before it sends an answer, so that there must be a deadline.
		"messages over HTTP/1": {kind: "application/connect+proto", body: message + message, http1: true, reads: []bool{true, true, true, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &filter{cfg: Config{BodyBytes: 100, BodyTime: time.Minute}}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", strings.NewReader(tc.body))
			r.Header.Set("Content-Type", tc.kind)
			if r.ProtoMajor = 2; tc.http1 {
				r.ProtoMajor = 1
			}
			w := &waiting{ResponseWriter: httptest.NewRecorder()}
			b := f.body(w, r, http.NewResponseController(w), memory.NewBudget(1000).Share(1000))
			if !w.limited {
				t.Error("at first there is no deadline")
			}
			for i, want := range tc.reads {
				before := w.set
				if _, err := b.Read(make([]byte, 7)); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				if w.limited != want {
					t.Errorf("read %d: a deadline: %t", i, w.limited)
				}
				// The second message begins with the third read.
				if i == 2 && len(tc.body) > 10 && w.set == before {
					t.Error("the second message has the deadline of the first")
				}
			}
		})
	}
}
