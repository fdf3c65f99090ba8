package closing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/closing"
)

type key struct{}

// TestBounded: a close outlives the work that has ended, and does not wait for ever.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		cancel()
		began := time.Now()
		err := closing.Bounded(ctx, func(ctx context.Context) error {
			if ctx.Err() != nil || ctx.Value(key{}) != "kept" {
				t.Errorf("the close got a context that has ended, or another one: %v", ctx.Err())
			}
			<-ctx.Done() // a server that does not answer
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != closing.Timeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
