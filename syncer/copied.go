package syncer

import (
	"context"
	"fmt"

	"dbcontroller.dev/upgradestate"
)

// Copies is where shards note how far they have copied.
type Copies interface {
	LoadPlan(ctx context.Context, dir DirectionKey) (p Plan, found bool, err error)
	LoadCheckpoint(ctx context.Context, dir DirectionKey, shard int) (c Checkpoint, found bool, err error)
}

// Loaded reports whether everything that a direction copies is in its target, as the stored
// checkpoints of all shards show, and nobody can load there any longer. The kinds are then not
// renamed again before a switch, unless the history of the source is lost.
func Loaded(ctx context.Context, j Copies, d upgradestate.Deployment, to string, key DirectionKey) (bool, error) {
	plan, found, err := j.LoadPlan(ctx, key)
	if err != nil || !found {
		return false, err
	}
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
		if len(c.done(names)) < len(names) {
			return false, nil
		}
	}
	return true, nil
}

// Agreed reports whether everything that a direction copies is copied and compared, as the stored
// checkpoints of all shards show.
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

// sourceLacks is why nothing of the source can be followed now; "" while it can. e.mu is held.
func (e *Engine) sourceLacks() string {
	if e.replaced != "" || e.SourceLacks == nil || e.switching() {
		return e.replaced
	}
	return e.SourceLacks()
}

// lives is Parts.Lives.
func (e *Engine) lives(ctx context.Context) error {
	if e.Lives == nil {
		return nil
	}
	return e.Lives(ctx)
}

// targetLacks is Parts.TargetLacks.
func (e *Engine) targetLacks() string {
	if e.TargetLacks == nil {
		return ""
	}
	return e.TargetLacks()
}
