package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// recheckEvery is the interval between two checks of the caller of a running request. A watch has no
// end of its own, so without these checks its caller would keep it after the token was revoked.
const recheckEvery = 15 * time.Second

// expiredTime is the time that a running request has after its caller's proof has expired. Calls that
// wait for news end within it. An application renews its token in time, and must not lose such a call.
const expiredTime = 5 * time.Minute

// errUnavailable means that the caller is unknown for a reason that is not the caller's.
var errUnavailable = errors.New("who calls cannot be found out now: try again")

// running is a request whose caller the Guard checks again until it ends.
type running struct {
	guard  *Guard
	caller Caller
	call   string
	row    Row
	proof  *http.Request // what the caller proved itself with
	cancel context.CancelCauseFunc
	body   *http.ResponseController

	expired time.Time // when the proof was first found expired

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// rechecked returns a context that ends when the proof of the caller no longer counts. Call end when the
// handler has returned.
func (g *Guard) rechecked(ctx context.Context, w http.ResponseWriter, r *http.Request, caller Caller) (_ context.Context, end func()) {
	// Without a proof there is nothing to revoke.
	if len(g.cfg.Authenticators) == 0 || !caller.Proven() {
		return ctx, func() {}
	}
	row, _ := g.cfg.Table.Row(r.URL.Path)
	ctx, cancel := context.WithCancelCause(ctx)
	q := &running{
		guard: g, caller: caller, call: clip(callName(r.URL.Path)), row: row, cancel: cancel, body: http.NewResponseController(w),
		// The handler may change the header of r.
		proof: &http.Request{Header: http.Header{authorization: slices.Clone(r.Header[authorization])}, TLS: r.TLS},
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = time.AfterFunc(recheckEvery, func() { q.check(ctx) })
	return ctx, q.end
}

// check ends the request if its caller is no longer who it was.
func (q *running) check(ctx context.Context) {
	err := q.refusal(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.ended: // the connection may serve another request already
	case err == nil:
		q.timer.Reset(recheckEvery)
	default:
		q.guard.cfg.Audit.ended(q.caller, q.call, err)
		q.cancel(connect.NewError(connect.CodeUnauthenticated, err))
		// A handler that waits for the next message of a stream does not see its context.
		_ = q.body.SetReadDeadline(time.Now())
	}
}

// refusal returns the reason why the caller may not go on, or nil.
func (q *running) refusal(ctx context.Context) error {
	id, err := q.guard.identify(ctx, q.proof, Identity{})
	var invalid *UnprovenError
	switch {
	case err == nil && id == q.caller.Identity:
		return nil
	case err == nil:
		return errors.New("the proof of " + q.caller.Name + " names somebody else now")
	// The issuer is away, for example. That is no revocation.
	case errors.Is(err, errUnavailable):
		return nil
	case errors.As(err, &invalid) && invalid.Expired:
		if q.expired.IsZero() {
			q.expired = time.Now()
		}
		// Calls that change something end by themselves. Their caller was admitted for all of their
		// work, and half of it would be lost.
		if q.row.Changes || time.Since(q.expired) < expiredTime {
			return nil
		}
	}
	return err
}

// end stops the checks. Afterwards they touch neither the request nor its connection.
func (q *running) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.timer.Stop()
	q.cancel(nil)
}
