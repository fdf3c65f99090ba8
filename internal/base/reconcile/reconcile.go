// Package reconcile runs the loops of a controller. A loop acts on the newest state. It acts again
// when the state changes, and after a delay if it failed or has more to do.
//
// A loop is level-triggered. It calls its step with the newest state only, and may skip states in
// between. A step must therefore read, decide and act idempotently, and must not count on seeing
// every change. One step runs at a time.
//
// The package watches nothing and chooses no delay: the caller provides the feed, and the step
// returns the delay. Begin to read at Loop.
package reconcile

import (
	"context"
	"time"
)

// Loop calls Step with the states that a feed sends.
type Loop[T any] struct {
	// Step acts on the latest state. Run calls it for each new state, and once more after the delay
	// that it returns. A delay of 0 means not before the next state.
	Step func(ctx context.Context, latest T) (again time.Duration, err error)
	// Same (optional) reports that the new state gives a step nothing new to do. Run then skips the
	// step, but a pending delay stays in force, and the later step gets the newest state.
	Same func(before, now T) bool
	// Retry is the delay after a failed step that returned none.
	Retry time.Duration
	// Failed (optional) is called with a step's error, unless the context has ended. repeated is
	// true if the error deserves no log line (Complaint).
	Failed func(latest T, err error, repeated bool)
}

// Run runs until ctx ends, and returns its error. It returns nil if the feed is closed earlier.
func (l Loop[T]) Run(ctx context.Context, feed <-chan T) error {
	wake := time.NewTimer(0)
	wake.Stop() // without a state there is nothing to do
	defer wake.Stop()
	var latest T
	var failing Complaint
	seen := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now, open := <-feed:
			if !open {
				return ctx.Err()
			}
			before, first := latest, !seen
			latest, seen = now, true
			if !first && l.Same != nil && l.Same(before, now) {
				continue
			}
		// The delay has passed: the step runs again with the state it saw last.
		case <-wake.C:
		}
		again, err := l.Step(ctx, latest)
		// The context's end fails most steps, so that error is not worth a report.
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && again == 0 {
			again = l.Retry
		}
		if err != nil && l.Failed != nil {
			l.Failed(latest, err, !failing.News(err))
		}
		// After a success the same error is news again, and deserves a line.
		if err == nil {
			failing.Over()
		}
		// A step replaces the pending delay: its decision is the newer one.
		wake.Stop()
		if again > 0 {
			wake.Reset(again)
		}
	}
}
