package app

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// schedule is an open loop: operations are due at fixed times, whatever became of those
// before. A client that is held up works off what became due meanwhile, late.
type schedule struct {
	start  time.Time
	every  time.Duration // between two operations of one client
	offset time.Duration // of this client's first operation
}

// run calls do for each operation, with the time at which it was due, until stop is
// closed or ctx ends.
func (s schedule) run(ctx context.Context, stop <-chan struct{}, do func(due time.Time)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for due := s.start.Add(s.offset); ; due = due.Add(s.every) {
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-timer.C:
		}
		do(due)
	}
}

// clients starts n clients that share a rate a second, and returns when all have stopped.
func clients(ctx context.Context, g *errgroup.Group, stop <-chan struct{}, n int, rate float64, do func(client int, due time.Time)) {
	start := time.Now()
	every := time.Duration(float64(time.Second) * float64(n) / rate)
	for i := range n {
		s := schedule{start: start, every: every, offset: every * time.Duration(i) / time.Duration(n)}
		g.Go(func() error {
			s.run(ctx, stop, func(due time.Time) { do(i, due) })
			return nil
		})
	}
}
