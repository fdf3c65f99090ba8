package rest

import (
	"errors"
	"maps"
	"net/http"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
)

// answer takes memory for the response of a call before the transcoder keeps and translates it. It
// replaces a response that has no room.
//
// It has headers of its own, and sends them once. The transcoder sends them at the end, and would take
// those that a handler sets behind a body for headers of the REST response.
type answer struct {
	to       http.ResponseWriter
	header   http.Header
	req      *http.Request
	exchange *exchange
	reads    bool // the call has no effect
	status   int  // 0: none yet
	size     int64
	begun    bool
	full     bool
	held     *memory.Held
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader keeps the status for the first Write, which may replace the response.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if a.full {
		return 0, memory.ErrNoRoom
	}
	if a.held == nil {
		a.held = memory.Of(a.req.Context()).Hold()
	}
	a.size += int64(len(p))
	// As many copies as of a request: received, in a buffer, decoded, and as JSON.
	need := limits.BodyCopies * a.size
	if a.held.Set(need) {
		a.begin()
		return a.to.Write(p)
	}
	a.full = true
	if !a.begun {
		a.refuse(a.held.Possible(need))
	}
	return 0, memory.ErrNoRoom
}

// refuse answers with an error in place of the response.
func (a *answer) refuse(possible bool) {
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type"} {
		a.header.Del(name)
	}
	var err *connect.Error
	switch {
	case !a.reads: // a client must not repeat a write
		err = refusal.New(refusal.OutcomeUnknown, errors.New("it may be written, and there is no room for its answer: read it"))
	case possible:
		a.header.Set("Retry-After", "1")
		err = refusal.New(refusal.Busy, memory.ErrNoRoom)
	default:
		err = connect.NewError(connect.CodeResourceExhausted, errors.New("the answer is larger than the server can hold for one request: ask for less"))
	}
	a.status = 0
	a.begin()
	refusal.Write(a.to, a.req, err)
}

// begin sends the headers and the status.
func (a *answer) begin() {
	if a.begun {
		return
	}
	a.begun, a.exchange.answered = true, true
	a.header.Del("Accept-Encoding") // procedures accept compressed requests, REST does not
	maps.Copy(a.to.Header(), a.header)
	if a.status != 0 {
		a.to.WriteHeader(a.status)
	}
}

// Flush implements http.Flusher. The transcoder sends a response as a whole.
func (a *answer) Flush() {}
