package resource

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
)

// noRoom returns the error for missing memory. Reads return the same error.
func noRoom() error { return refusal.New(refusal.Busy, memory.ErrNoRoom) }

// room waits for memory that other requests hold.
type room struct{ retry *backoff.ExponentialBackOff }

func newRoom() room {
	return room{backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))}
}

// wait pauses before the next attempt. The pauses grow up to two seconds.
func (r room) wait(ctx context.Context) error {
	select {
	case <-time.After(r.retry.NextBackOff()):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// whenRoom calls f until it does not fail for lack of memory. f must hold no memory when it
// returns, so that two watches cannot wait for each other.
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
