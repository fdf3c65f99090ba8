package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
)

// watchOwnership adopts gained shards, hands over leaving ones, and drops lost ones.
func (e *Engine) watchOwnership(ctx context.Context) error {
	defer e.sayAdopted()
	var say <-chan time.Time // set while adopted shards are not logged yet
	for {
		if err := e.adopt(ctx); err != nil {
			return err
		}
		// One line for all shards that arrive within sayAdoptedAfter.
		if e.hasAdopted() && say == nil {
			say = time.After(sayAdoptedAfter)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-say:
			say = nil
			e.sayAdopted()
		case <-e.Ownership.Changes():
		case <-e.readopt:
		}
	}
}

// adopt brings the engine's shards in line with its ownership.
func (e *Engine) adopt(ctx context.Context) error {
	leaving := e.Ownership.Leaving()
	e.mu.Lock()
	for _, n := range leaving {
		if s := e.shards[n]; s != nil {
			// A leaving shard applies no further changes, so that its last checkpoint is exact.
			s.leaving, s.dirty = true, true
		}
	}
	e.mu.Unlock()
	if len(leaving) > 0 {
		if _, err := e.saveCheckpoints(ctx, false); err != nil {
			// The next owner repeats the missing work, which is safe.
			e.Log.Info("shards leave without a last checkpoint", zap.String("shards", shards.Ranges(leaving)), zap.Error(err))
		}
	}
	for _, n := range leaving {
		if err := e.Ownership.Release(ctx, n); err != nil {
			return fmt.Errorf("release shard %d: %w", n, err)
		}
	}
	// Read after the releases, so that a released shard is dropped.
	owned := e.Ownership.Owned()
	e.mu.Lock()
	e.dropLost(owned)
	e.setPace()
	var gained []int
	for n := range owned {
		if e.shards[n] == nil {
			gained = append(gained, n)
		}
	}
	e.mu.Unlock()
	if len(gained) == 0 {
		return nil
	}
	slices.Sort(gained)
	return e.persist(ctx, "load checkpoints", func() error { return e.load(ctx, gained, owned) })
}

// dropLost drops shards that are no longer owned, or owned under a new lock. e.mu is held.
func (e *Engine) dropLost(owned map[int]shards.Lock) {
	for n, s := range e.shards {
		// Another owner may have worked between two locks. Its checkpoint counts, not this state.
		if lock, ok := owned[n]; !ok || lock.Create != s.lock.Create {
			delete(e.shards, n)
		}
	}
}

// load sets gained shards to their checkpoints, or to the start of the plan.
func (e *Engine) load(ctx context.Context, gained []int, owned map[int]shards.Lock) error {
	loaded := map[int]Checkpoint{}
	for _, n := range gained {
		c, found, err := e.Journal.LoadCheckpoint(ctx, e.key, n)
		if err != nil {
			return err
		}
		if !found {
			c = Checkpoint{Position: e.plan.Start, Target: e.plan.Target}
		}
		loaded[n] = c
	}
	// Entries of former owners block a ready report. They are listed after the checkpoints are
	// loaded, so that no entry parked before a checkpoint is missing.
	if err := e.refreshParked(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range gained {
		e.install(owned[n], loaded[n])
	}
	e.adopted = append(e.adopted, gained...)
	// The running streams may be past the positions of these shards.
	e.restart, e.rewatch = true, true
	e.setPace()
	e.announce()
	return nil
}

// install creates a shard from its checkpoint. e.mu is held.
func (e *Engine) install(lock shards.Lock, c Checkpoint) {
	at := place{at: c.Position, markers: c.Markers, lateDeletes: c.LateDeletes}
	s := &shard{
		lock: lock, todo: map[string]*rangeTask{}, names: e.plan.names(lock.Shard, e.cfg.Ring), copied: c.Count,
		applied: at, compared: at, late: map[transform.GroupID]lateEntry{}, verified: c.Verified || e.plan.InSync, rescan: c.Rescan, fences: c.Fences,
		watched: c.Target, repair: c.Repair, left: place{at: c.Left, markers: c.LeftMarkers},
	}
	// The owner before has not seen the end of the direction.
	if s.left.at.IsZero() && e.over() {
		s.left = at.leaving()
	}
	if s.verified && s.watched.IsZero() {
		// The checkpoint has no position in the target's changes: an earlier binary wrote it, or
		// those changes are lost. A plan InSync has no ranges to compare and needs a rescan.
		s.verified, s.rescan = e.plan.InSync, s.rescan || e.plan.InSync
	}
	s.done = c.done(s.names)
	e.plan.part(lock.Shard, e.cfg.Ring, func(kind string, i int, r record.Range) {
		name := rangeName(kind, i)
		if s.done[name] {
			return
		}
		rest, begun := c.Copied[name]
		// A range that was never begun keeps its full length.
		if begun {
			r = rest
		}
		s.todo[name] = &rangeTask{job: copies, shard: lock.Shard, name: name, kind: kind, rest: r, begun: begun, mark: r.From}
	})
	s.stored = s.complete()
	e.shards[lock.Shard] = s
}
