package faultstore

import (
	"context"

	"dbcontroller/record"
)

var _ record.Monitor = (*Namespace)(nil)

// Health is record.Monitor's; a wrapped namespace that is none is idle.
func (n *Namespace) Health(ctx context.Context) (record.Health, error) {
	return do(ctx, n.inj, Op{Command: Health}, func() (record.Health, error) {
		m, ok := n.inner.(record.Monitor)
		if !ok {
			return record.Health{}, nil
		}
		return m.Health(ctx)
	})
}
