package syncer

import (
	"context"
	"fmt"
)

// Copies is where shards note how far they have copied.
type Copies interface {
	LoadPlan(ctx context.Context, dir DirectionKey) (p Plan, found bool, err error)
	LoadCheckpoint(ctx context.Context, dir DirectionKey, shard int) (c Checkpoint, found bool, err error)
}

// Copied reports whether everything that a direction copies is copied, in all shards, as
// their stored checkpoints show.
func Copied(ctx context.Context, j Copies, key DirectionKey, ring int) (bool, error) {
	plan, found, err := j.LoadPlan(ctx, key)
	if err != nil || !found {
		return false, err
	}
	if plan.InSync {
		return true, nil
	}
	for shard := range ring {
		names := plan.names(shard, ring)
		if len(names) == 0 {
			continue
		}
		c, _, err := j.LoadCheckpoint(ctx, key, shard)
		if err != nil {
			return false, fmt.Errorf("checkpoint of shard %d: %w", shard, err)
		}
		if len(c.done(names)) < len(names) {
			return false, nil
		}
	}
	return true, nil
}

// targetLacks is Parts.TargetLacks.
func (e *Engine) targetLacks() string {
	if e.TargetLacks == nil {
		return ""
	}
	return e.TargetLacks()
}
