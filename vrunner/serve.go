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

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
)

// ServeHTTP runs a request on the stack of the active version. Writes pass the gate. If a switch
// interrupts a request before it has any effect, ServeHTTP runs the request again, so that the
// client notices only latency. It sends streams as the handler writes them.
func (r *Runner) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.streaming(req) {
		r.serveStream(w, req)
		return
	}
	// The whole body is needed: the handler may have to read it twice.
	kept := &keptBody{Reader: http.MaxBytesReader(w, req.Body, r.cfg.MaxBody), held: memory.Of(req.Context()).Hold()}
	body, err := io.ReadAll(kept)
	if err != nil {
		code := connect.CodeInvalidArgument
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			code = connect.CodeResourceExhausted
			err = fmt.Errorf("request body is larger than %d bytes", tooLarge.Limit)
		}
		var answer *connect.Error
		if !errors.As(err, &answer) { // missing memory for the body has its own answer
			answer = connect.NewError(code, err)
		}
		if busy(answer) {
			w.Header().Set("Retry-After", "1")
		}
		r.refuse(w, req, answer)
		return
	}
	// One deadline for all runs, so that repeated switches cannot delay a client for ever.
	ctx, cancel := context.WithTimeout(req.Context(), r.cfg.HoldCap)
	defer cancel()
	for {
		out := newCapture(req.Context())
		interrupted, revision, err := r.attempt(ctx, req, body, out)
		// The pass is given back by now, so a slow region does not hold up a switch here.
		if err == nil && !interrupted && out.elsewhere != "" && !out.effect && r.cfg.Forward != nil &&
			r.cfg.Forward(w, req, body, out.elsewhere) {
			out.drop()
			kept.held.Set(0)
			return
		}
		if err == nil && !interrupted {
			if !imported(req.Context()) {
				memory.Of(req.Context()).Settle(0) // a slow client needs no request body
			}
			kept.held.Set(0)
			if out.full {
				if !out.effect && !out.never { // a client must not repeat a write
					w.Header().Set("Retry-After", "1")
				}
				r.refuse(w, req, noRoomFor(out))
				return
			}
			out.replay(w)
			out.drop() // an import goes on with its next message
			return
		}
		// The response of an interrupted run must not reach the client.
		out.drop()
		if err == nil {
			err = r.newer(ctx, revision)
		}
		switch {
		case err == nil:
			continue
		case req.Context().Err() != nil:
			return // the client has disconnected
		case ctx.Err() != nil:
			err = ErrHeld
		}
		w.Header().Set("Retry-After", "1")
		r.refuse(w, req, unavailable(err))
		return
	}
}

// keptBody counts the bytes of a body that is kept for another run. The listener counts the message
// that a handler reads, as sent and decompressed.
type keptBody struct {
	io.Reader
	held *memory.Held
	size int64
}

func (k *keptBody) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	k.size += int64(n)
	if !k.held.Set(k.size) {
		return 0, memory.Full(k.held.Possible(k.size))
	}
	return n, err
}

// attempt runs the request once. ctx bounds the time at the gate. interrupted reports that a switch
// ended the run without effect. The next run then needs a record newer than revision.
func (r *Runner) attempt(ctx context.Context, req *http.Request, body []byte, out *capture) (interrupted bool, revision int64, err error) {
	d := r.current()
	if err := r.serves(d); err != nil {
		return false, 0, err
	}
	// Requests must not see a new namespace before its fixtures exist.
	if err := r.started(ctx); err != nil {
		return false, 0, err
	}
	run := &request{version: d.CurrentVersion}
	revision = d.Revision
	// The pass decides the version: the record may have changed while the write waited.
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
	// The handler keeps the client's context. Only the wait before it has the deadline.
	inner := req.Clone(context.WithValue(req.Context(), requestKey{}, run))
	inner.Body = io.NopCloser(bytes.NewReader(body))
	inner.ContentLength = int64(len(body))
	r.stacks[run.version].Handler.ServeHTTP(out, inner)
	out.effect = run.effect.Load()
	if region := run.elsewhere.Load(); region != nil {
		out.elsewhere = *region
	}
	return run.moved.Load() && !run.effect.Load(), revision, nil
}

// unavailable returns the Connect error of err with its reason, or else one with code UNAVAILABLE.
func unavailable(err error) *connect.Error {
	if answer, ok := refusal.In(err); ok {
		return answer
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

var errorWriter = connect.NewErrorWriter()

// refuse sends an error in the protocol of the request.
func (r *Runner) refuse(w http.ResponseWriter, req *http.Request, err *connect.Error) {
	if err.Code() == connect.CodeResourceExhausted && !errorWriter.IsSupported(req) {
		http.Error(w, err.Message(), http.StatusRequestEntityTooLarge) // Connect has no such code
		return
	}
	refusal.Write(w, req, err)
}

// noRoomFor returns the error of a request that ran but whose response did not fit into memory.
func noRoomFor(out *capture) *connect.Error {
	switch {
	case out.effect:
		return refusal.New(refusal.OutcomeUnknown, errors.New("it was written, and there is no room for its answer: read it"))
	case out.never: // Connect uses this code for messages that are too large
		return connect.NewError(connect.CodeResourceExhausted, errors.New("the answer is larger than the server can hold for one request: ask for less"))
	default:
		return refusal.New(refusal.Busy, memory.ErrNoRoom)
	}
}

// capture keeps a response until the request is known to count, and while the client reads it. sent
// holds the headers at the time of the status. Headers set later are trailers.
type capture struct {
	header http.Header
	sent   http.Header // nil before the status
	status int
	body   []byte
	held   *memory.Held // counts the capacity of body
	full   bool         // the body did not fit into memory and is dropped
	never  bool         // it would not fit on an idle server either
	effect bool         // the request has written, or may have
	// elsewhere is the region to which the request belongs; empty: this one.
	elsewhere string
}

func newCapture(ctx context.Context) *capture {
	return &capture{header: http.Header{}, held: memory.Of(ctx).Hold()}
}

// drop frees the body.
func (c *capture) drop() {
	c.body = nil
	c.held.Set(0)
}

func (c *capture) Header() http.Header { return c.header }

func (c *capture) WriteHeader(status int) {
	// Informational responses, such as 103, come before the real status.
	informational := status < http.StatusOK && status != http.StatusSwitchingProtocols
	if c.status == 0 && !informational {
		c.status, c.sent = status, c.header.Clone()
	}
}

func (c *capture) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if c.full {
		return 0, memory.ErrNoRoom
	}
	if need := len(c.body) + len(b); need > cap(c.body) {
		size, ok := c.grow(need)
		if !ok {
			c.full, c.never = true, !c.held.Possible(int64(need))
			c.drop()
			return 0, memory.ErrNoRoom
		}
		// append would choose a capacity that the counter does not know.
		c.body = append(make([]byte, 0, size), c.body...)
	}
	c.body = append(c.body, b...)
	return len(b), nil
}

// grow takes memory for need bytes and, if possible, for twice the present body. Each growth copies
// the body, so larger steps are cheaper.
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

// Flush implements http.Flusher, which streaming protocols require. It does nothing: a captured
// response is sent as a whole.
func (c *capture) Flush() {}

func (c *capture) replay(w http.ResponseWriter) {
	c.WriteHeader(http.StatusOK) // no-op if the handler has sent a status
	maps.Copy(w.Header(), c.sent)
	w.WriteHeader(c.status)
	_, _ = w.Write(c.body) // there is no way to report an error to a client that left
	// After the body, net/http sends these as trailers.
	maps.Copy(w.Header(), c.header)
}
