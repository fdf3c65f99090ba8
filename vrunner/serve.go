package vrunner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/refusal"
)

// ServeHTTP runs a request on the stack of the active version. Writes pass the gate. A
// request that a switch interrupted before it had any effect is run again, so that its
// client sees nothing but latency. Streams are sent as they come.
func (r *Runner) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.streaming(req) {
		r.serveStream(w, req)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.cfg.MaxBody))
	if err != nil {
		code := connect.CodeInvalidArgument
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			code = connect.CodeResourceExhausted
			err = fmt.Errorf("request body is larger than %d bytes", tooLarge.Limit)
		}
		var answer *connect.Error
		if errors.As(err, &answer) { // there was no room for it, say
			w.Header().Set("Retry-After", "1")
		} else {
			answer = connect.NewError(code, err)
		}
		r.refuse(w, req, answer)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), r.cfg.HoldCap)
	defer cancel()
	for {
		out := newCapture(req.Context())
		interrupted, revision, err := r.attempt(ctx, req, body, out)
		if err == nil && !interrupted {
			memory.Of(req.Context()).Settle(0) // the client may read slowly, and the body is done with
			if out.full {
				if !out.effect && !out.never { // what was written must not be sent again
					w.Header().Set("Retry-After", "1")
				}
				r.refuse(w, req, noRoomFor(out))
				return
			}
			out.replay(w)
			return
		}
		out.drop()
		if err == nil {
			err = r.newer(ctx, revision)
		}
		switch {
		case err == nil:
			continue
		case req.Context().Err() != nil:
			return // the client is gone
		case ctx.Err() != nil:
			err = ErrHeld
		}
		w.Header().Set("Retry-After", "1")
		r.refuse(w, req, unavailable(err))
		return
	}
}

// attempt runs the request once; ctx bounds how long it is held. interrupted reports that a
// switch ended it without effect, and that a record newer than revision is needed to run
// it again.
func (r *Runner) attempt(ctx context.Context, req *http.Request, body []byte, out *capture) (interrupted bool, revision int64, err error) {
	d := r.current()
	if err := r.serves(d); err != nil {
		return false, 0, err
	}
	if err := r.started(ctx); err != nil {
		return false, 0, err
	}
	run := &request{version: d.CurrentVersion}
	revision = d.Revision
	if r.stacks[run.version].Write(req) {
		p, err := r.gate.enter(ctx, int64(len(body)))
		if err != nil {
			return false, 0, err
		}
		defer p.leave()
		run.pass, run.version, revision = p, p.version, p.revision
	} else {
		run.shows = true
	}
	inner := req.Clone(context.WithValue(req.Context(), requestKey{}, run))
	inner.Body = io.NopCloser(bytes.NewReader(body))
	inner.ContentLength = int64(len(body))
	r.stacks[run.version].Handler.ServeHTTP(out, inner)
	out.effect = run.effect.Load()
	return run.moved.Load() && !run.effect.Load(), revision, nil
}

// unavailable is the answer that an error is, with its reason if it has one.
func unavailable(err error) *connect.Error {
	if answer, ok := refusal.In(err); ok {
		return answer
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

var errorWriter = connect.NewErrorWriter()

// refuse answers in the protocol of the request.
func (r *Runner) refuse(w http.ResponseWriter, req *http.Request, err *connect.Error) {
	if err.Code() == connect.CodeResourceExhausted && !errorWriter.IsSupported(req) {
		http.Error(w, err.Message(), http.StatusRequestEntityTooLarge) // which plain HTTP has, and Connect has not
		return
	}
	refusal.Write(w, req, err)
}

// noRoomFor refuses what ran, and whose response found no room next to those of others.
func noRoomFor(out *capture) *connect.Error {
	switch {
	case out.effect:
		return refusal.New(refusal.OutcomeUnknown, errors.New("it was written, and there is no room for its answer: read it"))
	case out.never: // Connect has this code for messages that are too large
		return connect.NewError(connect.CodeResourceExhausted, errors.New("the answer is larger than the server can hold for one request: ask for less"))
	default:
		return refusal.New(refusal.Busy, errNoRoom)
	}
}

// errNoRoom: what requests hold in memory is bounded, and others hold it.
var errNoRoom = memory.ErrNoRoom

// capture keeps a response until it is known that it counts, and while its client reads it. The
// headers are those at the time of the status; what is set later is trailers.
type capture struct {
	header http.Header
	sent   http.Header // nil before the status
	status int
	body   []byte
	held   *memory.Held // the capacity of body
	full   bool         // there was no room for the body, which is gone
	never  bool         // there is none on an idle server either
	effect bool         // the request has, or may have, written
}

func newCapture(ctx context.Context) *capture {
	return &capture{header: http.Header{}, held: memory.Of(ctx).Hold()}
}

// drop forgets the body.
func (c *capture) drop() {
	c.body = nil
	c.held.Set(0)
}

func (c *capture) Header() http.Header { return c.header }

func (c *capture) WriteHeader(status int) {
	informational := status < http.StatusOK && status != http.StatusSwitchingProtocols
	if c.status == 0 && !informational {
		c.status, c.sent = status, c.header.Clone()
	}
}

func (c *capture) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if c.full {
		return 0, errNoRoom
	}
	if need := len(c.body) + len(b); need > cap(c.body) {
		size, ok := c.grow(need)
		if !ok {
			c.full, c.never = true, !c.held.Possible(int64(need))
			c.drop()
			return 0, errNoRoom
		}
		c.body = append(make([]byte, 0, size), c.body...)
	}
	c.body = append(c.body, b...)
	return len(b), nil
}

// grow takes room for need bytes, and for as many more as it can, up to twice the present ones:
// each growth copies the body.
func (c *capture) grow(need int) (size int, ok bool) {
	const least = 64 << 10
	for size = max(need, 2*cap(c.body)); !c.held.Set(int64(size)); {
		if size == need {
			return 0, false
		}
		if size = need + (size-need)/2; size-need < least {
			size = need
		}
	}
	return size, true
}

// Flush is there because streaming protocols ask for it; a captured response is sent
// whole.
func (c *capture) Flush() {}

func (c *capture) replay(w http.ResponseWriter) {
	c.WriteHeader(http.StatusOK) // unless there was one
	maps.Copy(w.Header(), c.sent)
	w.WriteHeader(c.status)
	_, _ = w.Write(c.body) // a client that is gone cannot be answered
	maps.Copy(w.Header(), c.header)
}
