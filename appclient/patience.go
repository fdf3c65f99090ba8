package appclient

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// patience bounds the waits of a call. It does not bound the caller's function: a long operation
// must not be cut off without any switch.
type patience struct {
	until time.Time // zero: only the context of the call bounds the waits
}

// patient returns the patience of a call. The caller's own deadline replaces Config.Patience.
func (a *App) patient(ctx context.Context) patience {
	if _, ok := ctx.Deadline(); ok {
		return patience{}
	}
	return patience{time.Now().Add(a.cfg.Patience)}
}

// bound returns a context for waits.
func (p patience) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.until.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, p.until)
}

// extend adds time that was no wait.
func (p *patience) extend(by time.Duration) {
	if !p.until.IsZero() {
		p.until = p.until.Add(by)
	}
}

// pause waits before the next attempt.
func (p patience) pause(ctx context.Context, wait backoff.BackOff) error {
	waits, cancel := p.bound(ctx)
	defer cancel()
	return pause(waits, wait)
}
