package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/record"
)

// persist calls f with backoff until it succeeds, ctx ends, or its error is permanent. what names
// the work in logs and progress.
func (e *Engine) persist(ctx context.Context, what string, f func() error) error {
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0)) // an outage of hours must not end the engine
	tries := 0
	return backoff.Retry(func() error {
		err := f()
		if err == nil {
			if tries > 0 {
				e.recovered(what)
			}
			return nil
		}
		// Errors after the end of ctx are its consequence, and are not reported.
		if ctx.Err() != nil {
			return backoff.Permanent(ctx.Err())
		}
		if permanent(err) {
			return backoff.Permanent(err)
		}
		tries++
		e.failed(what, err)
		return err
	}, backoff.WithContext(policy, ctx))
}

// permanent reports whether an error ends the engine, since only an operator or a new plan can
// resolve it.
func permanent(err error) bool {
	var unsupported *record.UnsupportedError
	return errors.Is(err, errOver) || errors.Is(err, record.ErrTooLarge) || errors.Is(err, ErrOtherTransform) || errors.Is(err, record.ErrHistoryLost) ||
		errors.Is(err, record.ErrBroken) || errors.As(err, &unsupported)
}

// failed logs and records an error of work that will be retried.
func (e *Engine) failed(what string, err error) {
	e.complain(what, err)
	// Bulk work slows down while a database has problems.
	e.Pacer.Failed()
	e.mu.Lock()
	e.lastErr = fmt.Sprintf("%s: %v", what, err)
	for _, s := range e.shards {
		s.retries++
	}
	e.mu.Unlock()
}

// recovered clears the error that failed recorded for a work, unless another work has failed since.
func (e *Engine) recovered(what string) {
	e.mu.Lock()
	delete(e.complaints, what)
	if strings.HasPrefix(e.lastErr, what+": ") {
		e.lastErr = ""
	}
	e.mu.Unlock()
}
