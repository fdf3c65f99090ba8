package resource

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/refusal"
)

// noRoom refuses a watch for whose records others have taken the memory. Reads without room return
// the same error.
func noRoom() error { return refusal.New(refusal.Busy, memory.ErrNoRoom) }

// room waits for memory that other requests hold.
type room struct{ retry *backoff.ExponentialBackOff }

func newRoom() room {
	return room{backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))}
}

// wait waits a while before another attempt.
func (r room) wait(ctx context.Context) error {
	select {
	case <-time.After(r.retry.NextBackOff()):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// whenRoom calls f again until it has found room. f holds nothing while it waits, so that two watches
// cannot wait for each other.
func whenRoom(ctx context.Context, f func() error) error {
	err := f()
	for r := newRoom(); errors.Is(err, memory.ErrNoRoom); {
		if err := r.wait(ctx); err != nil {
			return err
		}
		err = f()
	}
	return err
}
