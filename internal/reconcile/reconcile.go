// Package reconcile runs the loops of a controller: do what the newest state asks for, again
// when another state is seen, and again after a while where it failed or has more to do.
//
// A loop is level-triggered. It calls its step with the newest state alone and may skip those
// in between, so a step reads, decides and does what may be repeated; it must not count on
// having seen every change. One step runs at a time.
//
// The package neither watches anything nor decides how long to rest: the caller gives it the
// feed, and the step returns the time.
package reconcile

import (
	"context"
	"time"
)

// Loop calls Step with what a feed sends.
type Loop[T any] struct {
	// Step does what the latest state asks for. It is called again when a new state is seen,
	// and without one after the time that it returns; 0 is not until then.
	Step func(ctx context.Context, latest T) (again time.Duration, err error)
	// Same (optional) reports that a step has nothing new to do for now that it did not have
	// for before. What it waits for stays due, and is then done for the newest state.
	Same func(before, now T) bool
	// Retry is the time after which a step that failed is called again, if it returned none.
	Retry time.Duration
	// Failed (optional) is called with the error of a step that was not ended with the context.
	// repeated is true if that is not worth a line in the log (Complaint).
	Failed func(latest T, err error, repeated bool)
}

// Run goes on until ctx ends, and returns why; or until the feed is closed.
func (l Loop[T]) Run(ctx context.Context, feed <-chan T) error {
	wake := time.NewTimer(0)
	wake.Stop() // until a step asks for it: there is no state yet
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
		case <-wake.C:
		}
		again, err := l.Step(ctx, latest)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && again == 0 {
			again = l.Retry
		}
		if err != nil && l.Failed != nil {
			l.Failed(latest, err, !failing.News(err))
		}
		if err == nil {
			failing.Over()
		}
		wake.Stop()
		if again > 0 {
			wake.Reset(again)
		}
	}
}
