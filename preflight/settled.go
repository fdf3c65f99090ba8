package preflight

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// settled is a Space whose collections are made, moved and given back to the end, also when the
// caller has gone meanwhile. A server goes on with a command whose caller does not wait for it any
// more, and a sweep that looked before it was done would leave what it makes.
type settled struct{ Space }

func (s settled) Provision(ctx context.Context, kind record.KindSpec, name string) (tok record.Token, err error) {
	err = toTheEnd(ctx, func(ctx context.Context) error {
		tok, err = s.Space.Provision(ctx, kind, name)
		return err
	})
	return tok, err
}

func (s settled) Fence(ctx context.Context, f record.Fence) error {
	return toTheEnd(ctx, func(ctx context.Context) error { return s.Space.Fence(ctx, f) })
}

func (s settled) Unfence(ctx context.Context, f record.Fence) error {
	return toTheEnd(ctx, func(ctx context.Context) error { return s.Space.Unfence(ctx, f) })
}

// settleTime is how long something is waited for whose caller has gone.
const settleTime = streamTimeout

// toTheEnd does something for a caller that is still there, and goes on for settleTime if the
// caller goes.
func toTheEnd(ctx context.Context, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	staying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if end, ok := ctx.Deadline(); ok { // the server is told of it, too
		staying, cancel = context.WithDeadline(staying, end.Add(settleTime))
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() { time.AfterFunc(settleTime, cancel) })()
	err := do(staying)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
