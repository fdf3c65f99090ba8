package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

func newBackoff(ctx context.Context, limit time.Duration) backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 2 * time.Millisecond
	b.MaxInterval = 250 * time.Millisecond
	b.MaxElapsedTime = limit
	return backoff.WithContext(b, ctx)
}

// retry calls attempt until it succeeds, fails for good (permanent), ctx ends or limit is
// over. Its error is that of the last attempt, also where ctx ends between two of them: the
// loop itself would answer with the end of ctx alone, and a write whose end is unknown would
// look like one that was never made.
func retry(ctx context.Context, limit time.Duration, attempt func() error) error {
	var last error
	err := backoff.Retry(func() error {
		last = attempt()
		return last
	}, newBackoff(ctx, limit))
	var final *backoff.PermanentError
	if err == nil || errors.As(last, &final) {
		return err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(last, ended) {
		return fmt.Errorf("%w: %w", ended, last)
	}
	return last
}

// permanent, returned by an attempt, ends a retry. It keeps a nil error nil.
func permanent(err error) error {
	if err == nil {
		return nil
	}
	return backoff.Permanent(err)
}
