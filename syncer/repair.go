package syncer

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// obeyRepair starts a rescan of shards for the latest repair request and reports the shards that
// have finished one, after their checkpoints are stored.
func (e *Engine) obeyRepair(ctx context.Context) error {
	locks := map[int]coord.Condition{}
	e.mu.Lock()
	x := upgradestate.OpenDifferent(e.record)
	if x == nil || x.Repair == "" || x.Version != e.Direction.To() || e.over() {
		e.mu.Unlock()
		return nil
	}
	ask := upgradestate.Repaired{Version: x.Version, ID: x.Repair}
	for n, s := range e.shards {
		switch {
		case s.leaving || len(s.todo) > 0:
		case s.repair != ask.ID:
			s.repair = ask.ID
			s.compareAnew()
			if e.pass != nil {
				delete(e.pass.shards, s) // the running pass compared part of this shard too early
			}
		// An unstored result could be lost with this process.
		case s.complete() && s.stored && slices.Contains(x.Left, n):
			ask.Shards = append(ask.Shards, n)
			locks[n] = s.lock.Condition()
		}
	}
	e.announce()
	e.mu.Unlock()
	slices.Sort(ask.Shards)
	// Chunks keep each transaction below coord.MaxOps.
	for chunk := range slices.Chunk(ask.Shards, reportsAtOnce) {
		var conds []coord.Condition
		for _, n := range chunk {
			conds = append(conds, locks[n])
		}
		if err := e.apply(ctx, upgradestate.Repaired{Version: ask.Version, ID: ask.ID, Shards: chunk}, conds...); err != nil {
			return fmt.Errorf("report repair: %w", err)
		}
	}
	return nil
}

// repairs reports whether a shard is rescanned for a repair request. e.mu is held.
func (e *Engine) repairs(s *shard) bool {
	x := upgradestate.OpenDifferent(e.record)
	return x != nil && x.Repair != "" && s.repair == x.Repair
}
