package preflight

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// settled is a Space that finishes creating, renaming and unfencing collections even if the
// caller's context ends. A server continues a command after its caller has left. A sweep in the
// meantime would miss the collection that the command creates.
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

// settleTime bounds the wait for a command after its caller has left.
const settleTime = streamTimeout

// toTheEnd runs do for a caller that is still there. If the caller leaves, do gets another
// settleTime.
func toTheEnd(ctx context.Context, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	staying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if end, ok := ctx.Deadline(); ok { // the server needs the later deadline as well
		staying, cancel = context.WithDeadline(staying, end.Add(settleTime))
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() { time.AfterFunc(settleTime, cancel) })()
	err := do(staying)
	// Report the caller's end too; it decides how the error is handled.
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
