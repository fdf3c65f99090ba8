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

// ErrFlipped is the cause that ends a stream's context when another version becomes active.
var ErrFlipped = refusal.Because(refusal.StreamEnded, "another version has become active; call again", nil)

// Stream runs fn for the active version. When another version becomes active, it cancels fn's
// context with the cause ErrFlipped, waits for fn to return, and runs fn for that version. It also
// runs fn again, after a pause, if fn lost changes (ErrLost). From the second run on it does the
// same if fn fails as busy (refusal.Busy), because the client already has a stream. After a minute
// of busy runs it returns the error. In all other cases it returns the result of fn, including nil.
//
// A stream passes no gate. It can read but never write, and neither delays a switch nor waits for
// one. Stream returns a *connect.Error with code UNAVAILABLE if this server does not know the
// version that became active, or if the server stops.
func (r *Runner) Stream(ctx context.Context, fn func(ctx context.Context, version string) error) error {
	retry := newStreamRetry()
	var crowded time.Time // start of a series of runs without memory
	for again := false; ; again = true {
		run, req, err := r.beginStream(ctx)
		if err != nil {
			return unavailable(err)
		}
		began := time.Now()
		err = fn(run, req.version)
		// endStream cancels run, so whether a flip ended it must be known before.
		ended := run.Err() != nil
		wanted := err != nil && ctx.Err() == nil && (ended || req.lost.Load() || again && busy(err))
		if wanted && !ended {
			// A run that lasted ends the series of failures.
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

// streamPause is the longest pause before a stream runs again. Each run lists everything. Without a
// pause, a watch that finds no memory would keep the database busy.
const streamPause = 5 * time.Second

// longestCrowd is the longest time that a stream without memory stays open. A stream holds memory
// for the names that its client has. Without a limit, such streams could wait for each other for
// ever.
const longestCrowd = time.Minute

func newStreamRetry() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(streamPause), backoff.WithMaxElapsedTime(0))
}

// busy reports whether a handler failed for lack of memory.
func busy(err error) bool {
	if answer, ok := refusal.In(err); ok {
		err = answer
	}
	reason, _ := refusal.Of(err)
	return reason == refusal.Busy
}

// beginStream registers one run of a stream and returns its context.
func (r *Runner) beginStream(ctx context.Context) (context.Context, *request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, nil, errStopped
	}
	// The check and the registration share one lock, so that a flip in between cannot miss the
	// stream.
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

// flipStreams ends the streams of earlier epochs. The caller holds r.mu.
func (r *Runner) flipStreams() {
	for req, cancel := range r.streams {
		if req.epoch != r.record.Epoch && !req.lasting {
			cancel(ErrFlipped)
		}
	}
}

// EndStreams ends all streams with UNAVAILABLE and the reason STOPPING, and prevents new ones. A
// server that stops calls it before it waits for its requests, since a stream has no end of its own.
// Run calls it at its end.
func (r *Runner) EndStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	// stopped and the loop share one lock with beginStream. A stream that begins later is refused.
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

// serveStream runs a streaming request directly on the active stack, once. It cannot run again,
// because the client already has parts of the response.
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
