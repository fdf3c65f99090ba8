package syncer

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// runSnapshot serves an upgrade to the snapshot: the rollback to the old data as they are. It
// plans, copies, follows and compares nothing, and touches neither database. The switch protocol is
// the same, so that no write is possible in both versions at once. Shards are ready at once, and
// drained as soon as the fences are in force, since the changes before the fences are given up.
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
		// An error is retried at the tick. The next news must not make it spin.
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

// serveSnapshot runs one round: it follows the ownership, reports and publishes.
func (e *Engine) serveSnapshot(ctx context.Context) error {
	for _, n := range e.Ownership.Leaving() {
		if err := e.Ownership.Release(ctx, n); err != nil {
			return fmt.Errorf("release shard %d: %w", n, err)
		}
	}
	owned := e.Ownership.Owned()
	e.mu.Lock()
	e.dropLost(owned)
	// Nothing is compared, so a new shard counts as verified from the start.
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

// lacksForSnapshot is lacks in an upgrade to the snapshot. e.mu is held.
func (e *Engine) lacksForSnapshot() upgradestate.Blocker {
	if e.switching() && e.record.Upgrade.Step != upgradestate.StepDrain {
		return upgradestate.Blocker{Text: ForSwitch}
	}
	return upgradestate.Blocker{}
}

// asked reports whether a Deployment asks for this engine's task in its direction: a sync, or the
// snapshot. The other task belongs to another engine.
func (e *Engine) asked(d upgradestate.Deployment) bool {
	if d.Upgrade == nil {
		return !e.cfg.Snapshot
	}
	return d.Upgrade.Snapshot == e.cfg.Snapshot
}
