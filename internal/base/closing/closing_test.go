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

// TestOutlive: work goes on after the end of its context, and not for ever.
func TestOutlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		outliving, done := closing.Outlive(ctx)
		defer done()
		time.Sleep(2 * closing.Timeout)
		cancel()
		synctest.Wait()
		if outliving.Err() != nil || outliving.Value(key{}) != "kept" {
			t.Errorf("the work got a context that has ended, or another one: %v", outliving.Err())
		}
		began := time.Now()
		<-outliving.Done()
		if time.Since(began) != closing.Timeout {
			t.Errorf("the work went on for %s", time.Since(began))
		}

		// Work that has ended leaves no goroutine behind, whether its context has ended or not.
		for _, ended := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			outliving, done := closing.Outlive(ctx)
			if ended {
				cancel()
				synctest.Wait()
			}
			done()
			if outliving.Err() == nil {
				t.Error("done does not end the context")
			}
			cancel()
		}
	})
}
