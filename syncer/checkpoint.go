package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller/coord"
	"dbcontroller/record"
)

// checkpoint is what can be stored of a shard now.
func (s *shard) checkpoint() Checkpoint {
	c := Checkpoint{
		Position: s.compared.at, Markers: s.compared.markers, LateDeletes: s.compared.lateDeletes,
		Copied: map[string]record.Range{}, Done: slices.Clone(s.done), Count: s.copied,
		// What is known to differ is found again by the next owner.
		Verified: s.verified && !s.rescan && s.found == 0, Rescan: s.rescan || s.rescanned && s.found > 0,
	}
	for name, t := range s.todo {
		c.Copied[name] = t.rest
	}
	return c
}

// checkpointChunk is how many checkpoints go into one transaction: with their locks
// they stay below coord.MaxOps.
const checkpointChunk = 16

// saveCheckpoints stores the checkpoints that have changed (all: also those that only
// moved on without any record).
func (e *Engine) saveCheckpoints(ctx context.Context, all bool) error {
	if err := e.saving.Acquire(ctx, 1); err != nil {
		return err
	}
	defer e.saving.Release(1)
	e.mu.Lock()
	var save []int
	for n, s := range e.shards {
		if s.dirty || all {
			save = append(save, n)
		}
	}
	e.mu.Unlock()
	slices.Sort(save)
	for chunk := range slices.Chunk(save, checkpointChunk) {
		if err := e.saveChunk(ctx, chunk); err != nil {
			return fmt.Errorf("save checkpoints: %w", err)
		}
	}
	return nil
}

func (e *Engine) saveChunk(ctx context.Context, chunk []int) error {
	cs := map[int]Checkpoint{}
	complete := map[*shard]bool{}
	var locks []coord.Condition
	e.mu.Lock()
	for _, n := range chunk {
		if s := e.shards[n]; s != nil {
			cs[n], complete[s] = s.checkpoint(), s.complete()
			locks = append(locks, s.lock.Condition())
			s.dirty = false
		}
	}
	e.mu.Unlock()
	if len(cs) == 0 {
		return nil
	}
	err := e.Journal.SaveCheckpoints(ctx, e.key, cs, locks...)
	e.mu.Lock()
	defer e.mu.Unlock()
	for s, whole := range complete {
		if err != nil {
			s.dirty = true
		} else {
			s.stored = whole
		}
	}
	return err
}

// keep stores checkpoints and publishes progress. It does not wait for comparisons, which
// may take long: no more than seconds of work may be lost with this process.
func (e *Engine) keep(ctx context.Context) error {
	tick := time.NewTicker(e.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := e.keepOnce(ctx); err == nil {
			e.recovered("checkpoint")
		} else if ctx.Err() == nil {
			e.failed("checkpoint", err)
			e.Log.Warn("checkpoint will be tried again", zap.Error(err))
		}
	}
}

// idleCheckpoint is how often the checkpoints of idle shards are stored.
const idleCheckpoint = 30 * time.Second

func (e *Engine) keepOnce(ctx context.Context) error {
	// Now and then also the checkpoints of idle shards: their positions would fall out of
	// the source's history otherwise.
	all := time.Since(e.savedAll) > idleCheckpoint
	if err := e.saveCheckpoints(ctx, all); err != nil {
		return e.lostOwnership(err)
	}
	if all {
		e.savedAll = time.Now()
	}
	return e.publish(ctx)
}
