package vrunner

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/refusal"
)

// ErrFlipped is the cause with which the context of a stream ends when another version
// became the active one.
var ErrFlipped = refusal.Because(refusal.StreamEnded, "another version has become active; call again", nil)

// Stream runs fn for the active version. When another one becomes active, it cancels fn's
// context with ErrFlipped as the cause, waits for fn to return, and runs it again for that
// version; likewise, after a pause, if fn lost changes (ErrLost) or was refused as busy in a
// further run: the client has a stream already, and waits a minute for room. It returns what fn
// returns otherwise, nil included.
//
// A stream passes no gate: it can read, never write, and neither holds nor is held by a
// switch. It ends with a *connect.Error of code UNAVAILABLE when the version that became
// active is one that this server does not know, and when the server stops.
func (r *Runner) Stream(ctx context.Context, fn func(ctx context.Context, version string) error) error {
	retry := newStreamRetry()
	var crowded time.Time // since when runs find no room
	for again := false; ; again = true {
		run, req, err := r.beginStream(ctx)
		if err != nil {
			return unavailable(err)
		}
		began := time.Now()
		err = fn(run, req.version)
		ended := run.Err() != nil
		wanted := err != nil && ctx.Err() == nil && (ended || req.lost.Load() || again && busy(err))
		if wanted && !ended {
			if time.Since(began) > streamPause {
				retry.Reset()
				crowded = time.Time{}
			}
			switch {
			case !busy(err):
				crowded = time.Time{}
			case crowded.IsZero():
				crowded = began
			case time.Since(crowded) > longestCrowd:
				wanted = false
			}
		}
		if wanted && !ended {
			pause(run, retry.NextBackOff()) // a flip or a stop ends the pause
		}
		r.endStream(req)
		if !wanted {
			return err
		}
	}
}

// streamPause is how long a stream waits at most before it runs again. Each run lists everything, so
// without a pause a watch that never finds room would keep the database busy.
const streamPause = 5 * time.Second

// longestCrowd is how long a stream whose runs find no room stays open. What it remembers of its
// client takes room as well: streams that wait for each other's would wait for good.
const longestCrowd = time.Minute

func newStreamRetry() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(streamPause), backoff.WithMaxElapsedTime(0))
}

// busy reports whether a handler found no room.
func busy(err error) bool {
	if answer, ok := refusal.In(err); ok {
		err = answer
	}
	reason, _ := refusal.Of(err)
	return reason == refusal.Busy
}

// beginStream returns the context of one run of a stream.
func (r *Runner) beginStream(ctx context.Context) (context.Context, *request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, nil, errStopped
	}
	if err := r.serves(r.record); err != nil {
		return nil, nil, err
	}
	req := &request{version: r.record.CurrentVersion, epoch: r.record.Epoch}
	run, cancel := context.WithCancelCause(context.WithValue(ctx, requestKey{}, req))
	r.streams[req] = cancel
	return run, req, nil
}

func (r *Runner) endStream(req *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[req](nil)
	delete(r.streams, req)
}

// flipStreams ends the streams of other direction epochs than the present. r.mu is held.
func (r *Runner) flipStreams() {
	for req, cancel := range r.streams {
		if req.epoch != r.record.Epoch {
			cancel(ErrFlipped)
		}
	}
}

// stopStreams ends all streams, and lets none begin.
func (r *Runner) stopStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for _, cancel := range r.streams {
		cancel(errStopped)
	}
}

// streaming reports whether the active stack answers a request with a stream.
func (r *Runner) streaming(req *http.Request) bool {
	stack, known := r.stacks[r.current().CurrentVersion]
	return known && stack.Stream != nil && stack.Stream(req)
}

// serveStream runs a streaming request straight on the active stack, once: what was sent
// cannot be sent again.
func (r *Runner) serveStream(w http.ResponseWriter, req *http.Request) {
	err := r.Stream(req.Context(), func(ctx context.Context, version string) error {
		r.stacks[version].Handler.ServeHTTP(w, req.WithContext(ctx))
		return nil
	})
	if refused := new(connect.Error); errors.As(err, &refused) {
		w.Header().Set("Retry-After", "1")
		r.refuse(w, req, refused)
	}
}
