package keys

import (
	"context"

	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/record"
)

// stored is the encrypted form of a version's namespace. It asks for the present connection on each
// call, because a rotation may outlast a password, and a changed password closes old connections.
type stored struct {
	keeper  *Keeper
	version string
}

var _ backfill.Namespace = stored{}

// withStored runs a command on the present connection.
func withStored[T any](ctx context.Context, s stored, do func(record.Namespace) (T, error)) (T, error) {
	e, err := s.keeper.encryption(ctx, s.version)
	if err != nil {
		var none T
		return none, err
	}
	return do(e.Stored())
}

func (s stored) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	return withStored(ctx, s, func(ns record.Namespace) (record.Page, error) { return ns.Scan(ctx, req) })
}

func (s stored) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	return withStored(ctx, s, func(ns record.Namespace) (record.Snapshot, error) { return ns.Read(ctx, req) })
}

func (s stored) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	return withStored(ctx, s, func(ns record.Namespace) ([]record.Result, error) { return ns.Swap(ctx, tok, swaps) })
}

func (s stored) Position(ctx context.Context) (record.Position, error) {
	return withStored(ctx, s, func(ns record.Namespace) (record.Position, error) { return ns.Position(ctx) })
}

func (s stored) Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error) {
	return withStored(ctx, s, func(ns record.Namespace) ([]record.Range, error) { return ns.Split(ctx, tok, n) })
}

func (s stored) Size(ctx context.Context, tok record.Token) (record.Size, error) {
	return withStored(ctx, s, func(ns record.Namespace) (record.Size, error) { return ns.Size(ctx, tok) })
}
