package syncer

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller/record"
)

// lateDelete is a delete behind the fence of a fixed-name kind, whose class lets deletes
// through.
type lateDelete struct {
	shard *shard
	kind  string
	key   record.Key
}

// foreignDeletes counts, by shard, the late deletes that are somebody else's. After the
// flip the way back is synced into the same collection, by deletes too; these have left a
// tombstone of a later direction epoch.
func (e *Engine) foreignDeletes(ctx context.Context, late []lateDelete, notBefore record.Version) (map[*shard]int64, error) {
	foreign := map[*shard]int64{}
	if len(late) == 0 {
		return foreign, nil
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return nil, err
	}
	req := record.ReadRequest{Tokens: src, NotBefore: notBefore, Guards: true}
	for _, l := range late {
		req.Select = append(req.Select, record.Selector{Kind: l.kind, Key: l.key})
	}
	snap, err := e.Source.Read(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("read guards of late deletes: %w", err)
	}
	type name struct {
		kind string
		key  record.Key
	}
	ours := map[name]bool{}
	for _, r := range snap.Records {
		if r.Guard.Epoch > e.cfg.Epoch {
			ours[name{r.Kind, r.Key}] = true
		}
	}
	for _, l := range late {
		if !ours[name{l.kind, l.key}] {
			foreign[l.shard]++
			e.Log.Warn("delete passed the fence", zap.String("kind", l.kind), zap.Stringer("key", l.key))
		}
	}
	return foreign, nil
}
