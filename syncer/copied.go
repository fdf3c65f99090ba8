package syncer

import (
	"context"
	"fmt"

	"dbcontroller.dev/upgradestate"
)

// Copies reads the plan and the checkpoints of a direction. found is false if none is stored.
type Copies interface {
	LoadPlan(ctx context.Context, dir DirectionKey) (p Plan, found bool, err error)
	LoadCheckpoint(ctx context.Context, dir DirectionKey, shard int) (c Checkpoint, found bool, err error)
}

// Loaded reports whether a direction has copied everything into its target and loaders are fenced,
// according to the stored checkpoints of all shards. A plan that copies nothing (Plan.InSync)
// counts as loaded. The engine then renames the kinds again before a switch only if the source's
// history is lost.
func Loaded(ctx context.Context, j Copies, d upgradestate.Deployment, to string, key DirectionKey) (bool, error) {
	plan, found, err := j.LoadPlan(ctx, key)
	if err != nil || !found {
		return false, err
	}
	// Such a plan copies nothing.
	if plan.InSync {
		return true, nil
	}
	if !upgradestate.LoadersFenced(d, to, 0) {
		return false, nil
	}
	for shard := range d.RingSize {
		names := plan.names(shard, d.RingSize)
		if len(names) == 0 {
			continue
		}
		c, _, err := j.LoadCheckpoint(ctx, key, shard)
		if err != nil {
			return false, fmt.Errorf("checkpoint of shard %d: %w", shard, err)
		}
		// A missing checkpoint has no finished ranges.
		if len(c.done(names)) < len(names) {
			return false, nil
		}
	}
	return true, nil
}

// Agreed reports whether a direction has copied and compared everything, according to the stored
// checkpoints of all shards of a ring.
func Agreed(ctx context.Context, j Copies, ring int, key DirectionKey) (bool, error) {
	for shard := range ring {
		c, _, err := j.LoadCheckpoint(ctx, key, shard)
		if err != nil {
			return false, fmt.Errorf("checkpoint of shard %d: %w", shard, err)
		}
		if !c.Verified || c.Rescan {
			return false, nil
		}
	}
	return true, nil
}

// sourceLacks returns the reason why the source cannot be followed now, or "". e.mu is held.
func (e *Engine) sourceLacks() string {
	// During a switch the source is fenced and renamed on purpose, so its check would mislead.
	if e.replaced != "" || e.SourceLacks == nil || e.switching() {
		return e.replaced
	}
	return e.SourceLacks()
}

// lives calls Parts.Lives, if set.
func (e *Engine) lives(ctx context.Context) error {
	if e.Lives == nil {
		return nil
	}
	return e.Lives(ctx)
}

// targetLacks calls Parts.TargetLacks, if set.
func (e *Engine) targetLacks() string {
	if e.TargetLacks == nil {
		return ""
	}
	return e.TargetLacks()
}
