package syncer

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// runSnapshot serves an upgrade to the snapshot: the rollback to the old data as they are.
// There is nothing to plan, to copy, to follow or to compare, and neither database is
// touched. The protocol of the switch is the same, so that no write is possible in both
// versions at once: the shards are ready at once, and drained when the fences are in force,
// for what lies before them is left behind.
func (e *Engine) runSnapshot(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.watchRecord(ctx) })
	g.Go(func() error { return e.reportSnapshot(ctx) })
	return g.Wait()
}

func (e *Engine) reportSnapshot(ctx context.Context) error {
	tick := time.NewTicker(e.cfg.Every)
	defer tick.Stop()
	for {
		e.mu.Lock()
		news := e.news
		e.mu.Unlock()
		if err := e.serveSnapshot(ctx); err != nil && ctx.Err() == nil {
			e.failed("report", err)
			news = nil
		} else {
			e.recovered("report")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-news:
		case <-e.Ownership.Changes():
		case <-e.readopt:
		}
	}
}

func (e *Engine) serveSnapshot(ctx context.Context) error {
	for _, n := range e.Ownership.Leaving() {
		if err := e.Ownership.Release(ctx, n); err != nil {
			return fmt.Errorf("release shard %d: %w", n, err)
		}
	}
	owned := e.Ownership.Owned()
	e.mu.Lock()
	e.dropLost(owned)
	for n, lock := range owned {
		if e.shards[n] == nil {
			e.shards[n] = &shard{lock: lock, verified: true, late: map[transform.GroupID]lateEntry{}}
		}
	}
	e.mu.Unlock()
	if err := e.reportReady(ctx); err != nil {
		return err
	}
	_, err := e.publish(ctx)
	return err
}

// lacksForSnapshot is what a shard waits for in an upgrade to the snapshot. e.mu is held.
func (e *Engine) lacksForSnapshot() upgradestate.Blocker {
	if e.switching() && e.record.Upgrade.Step != upgradestate.StepDrain {
		return upgradestate.Blocker{Text: ForSwitch}
	}
	return upgradestate.Blocker{}
}

// asked reports whether a record still asks for what this engine does in its direction: to
// sync, or to go back to the snapshot. The other one is another engine's.
func (e *Engine) asked(d upgradestate.Deployment) bool {
	if d.Upgrade == nil {
		return !e.cfg.Snapshot
	}
	return d.Upgrade.Snapshot == e.cfg.Snapshot
}
