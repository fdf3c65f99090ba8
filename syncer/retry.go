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

// persist repeats f, with backoff, until it succeeds, ctx ends, or its error is one that
// repeating cannot cure.
func (e *Engine) persist(ctx context.Context, what string, f func() error) error {
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	tries := 0
	return backoff.Retry(func() error {
		err := f()
		if err == nil {
			if tries > 0 {
				e.recovered(what)
			}
			return nil
		}
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

// permanent errors end an engine; a person, or a new plan, has to help.
func permanent(err error) bool {
	var unsupported *record.UnsupportedError
	return errors.Is(err, errOver) || errors.Is(err, record.ErrTooLarge) || errors.Is(err, ErrOtherTransform) || errors.Is(err, record.ErrHistoryLost) ||
		errors.Is(err, record.ErrBroken) || errors.As(err, &unsupported)
}

// failed notes an error that work goes on after, for people.
func (e *Engine) failed(what string, err error) {
	e.complain(what, err)
	e.Pacer.Failed()
	e.mu.Lock()
	e.lastErr = fmt.Sprintf("%s: %v", what, err)
	for _, s := range e.shards {
		s.retries++
	}
	e.mu.Unlock()
}

// recovered takes back what failed noted, unless something else failed since.
func (e *Engine) recovered(what string) {
	e.mu.Lock()
	delete(e.complaints, what)
	if strings.HasPrefix(e.lastErr, what+": ") {
		e.lastErr = ""
	}
	e.mu.Unlock()
}
