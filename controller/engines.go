package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/verify"
)

// engines holds the engine that runs now, and why there is none or the last one ended.
type engines struct {
	mu      sync.Mutex
	now     *syncer.Engine
	problem error
	stopped []syncer.Progress // of the shards while none runs because of problem
}

// replace makes now the engine that runs; the one before, should it still watch for late
// deletes, hands them over.
func (e *engines) replace(now *syncer.Engine) {
	e.mu.Lock()
	before := e.now
	e.now, e.problem, e.stopped = now, nil, nil
	e.mu.Unlock()
	if before != nil {
		before.HandOver(now)
	}
}

// late is what the engine that runs counts of late deletes, for the one that follows it;
// nil if none runs.
func (e *engines) late() func(shard int) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == nil {
		return nil
	}
	return e.now.LateDeletes
}

// end notes that an engine has ended, and why.
func (e *engines) end(ended *syncer.Engine, problem error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == ended {
		e.now, e.problem = nil, problem
	}
}

// fail notes why no engine could be started.
func (e *engines) fail(problem error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problem = problem
}

func (e *engines) ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

func (e *engines) progress() []syncer.Progress {
	e.mu.Lock()
	now, stopped := e.now, e.stopped
	e.mu.Unlock()
	if now == nil {
		return stopped
	}
	return now.Progress()
}

// stages is how long the engine that runs has copied, by stage.
func (e *engines) stages() map[syncer.Stage]time.Duration {
	e.mu.Lock()
	now := e.now
	e.mu.Unlock()
	if now == nil {
		return nil
	}
	return now.Stages()
}

// retryEngine is how long a failed engine rests. Failures that trying again cures are
// handled inside it; what ends it needs a person, and is said once each time.
const retryEngine = 10 * time.Second

// sync runs the engine of the direction that the record asks for. One whose direction has
// ended may go on next to the next one for a while: it watches for late deletes.
func (a *App) sync(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	defer func() { stop(); _ = g.Wait() }() // what ends an engine is told by runUntilPassed
	owned := newOwnership(a.pool)
	g.Go(func() error { return owned.run(ctx) })
	g.Go(func() error { return a.update(ctx, owned) })
	idle := owned.subscribe()
	defer owned.unsubscribe(idle)
	if err := a.watchLate(ctx, &g, owned); err != nil {
		return err
	}
	var failing reconcile.Complaint // a database may be away for long
	for {
		d, to, err := a.awaitDirection(ctx, idle)
		if err != nil {
			return err
		}
		if a.mustAnnounce(d) {
			_, err = a.announce(ctx, d)
		} else {
			err = a.runUntilPassed(ctx, &g, owned, d, to)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.engines.fail(err)
		if errors.Is(err, syncer.ErrOtherTransform) {
			return fmt.Errorf("%w: run the same binary and lenses everywhere", err)
		}
		if elsewhere(err) {
			return err
		}
		if err == nil {
			failing.Over()
			continue
		}
		a.tellStopped(ctx, err)
		if failing.News(err) {
			a.log.Error("sync has stopped and is tried again", zap.String("version", to), zap.Error(err), zap.Duration("every", retryEngine))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEngine):
		}
	}
}

// runUntilPassed runs an engine until it ends, or until the record asks for another
// direction. What an engine still has to do after the flip it does next to the next one; one
// whose target is no longer wanted is ended first.
func (a *App) runUntilPassed(ctx context.Context, g *errgroup.Group, owned *ownership, d upgradestate.Deployment, to string) error {
	d, _, err := a.ensureCollections(ctx, d, to)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	running, end := context.WithCancel(ctx)
	g.Go(func() error {
		defer end()
		mine := owned.subscribe()
		defer owned.unsubscribe(mine)
		ended <- a.runEngine(running, mine, d, to)
		return nil
	})
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := a.deployment.Watch(watching)
	for {
		select {
		case err := <-ended:
			return err
		case now, open := <-watch:
			if !open {
				return <-ended
			}
			if now.Epoch != d.Epoch {
				return nil
			}
			if wanted, ok := a.target(now); !ok || wanted != to || toSnapshot(now) != toSnapshot(d) {
				end()
				return <-ended
			}
			if a.mustAnnounce(now) { // this process has started during an upgrade, which was aborted
				if _, err := a.announce(ctx, now); err != nil {
					a.log.Warn("not every upgrade is announced", zap.Error(err))
				}
			}
		}
	}
}

// watchLate starts again, in a process that was not there at the latest switch, the engine
// whose direction ended with it, if the fence there lets deletes through. It ends by itself.
func (a *App) watchLate(ctx context.Context, g *errgroup.Group, owned *ownership) error {
	d, err := a.deployment.Get(ctx)
	if err != nil || d.LastSwitch == nil {
		return err
	}
	ended, last := d, d.LastSwitch
	ended.Epoch, ended.CurrentVersion = d.Epoch-1, last.From
	source, _ := d.Namespace(last.From)
	passes := func(k upgradestate.Kind) bool { return k.Fixed && k.Fence == string(record.FenceValidator) }
	if last.Snapshot || a.namespaces[last.From] == nil || a.namespaces[last.To] == nil || !slices.ContainsFunc(source.Kinds, passes) {
		return nil
	}
	mine := owned.subscribe()
	e, err := a.newEngine(mine, ended, last.To)
	if err != nil {
		owned.unsubscribe(mine)
		a.log.Warn("late deletes are not watched", zap.Error(err))
		return nil
	}
	g.Go(func() error {
		defer owned.unsubscribe(mine)
		if err := a.run(ctx, e); err != nil {
			a.log.Warn("late deletes are no longer watched", zap.Error(err))
		}
		return nil
	})
	return nil
}

// awaitDirection waits for a record that asks for a sync, or in which upgrades are still
// to be announced. Meanwhile, with no engine to do it, it lets go of the shards that other
// controllers must have.
func (a *App) awaitDirection(ctx context.Context, owned *subscription) (d upgradestate.Deployment, to string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := a.deployment.Watch(watching)
	for {
		for _, n := range a.pool.Leaving() {
			if err := a.pool.Release(ctx, n); err != nil {
				return d, "", fmt.Errorf("release shard %d: %w", n, err)
			}
		}
		select {
		case <-ctx.Done():
			return d, "", ctx.Err()
		case d = <-watch:
			if to, ok := a.target(d); d.Name != "" && (ok || a.mustAnnounce(d)) {
				return d, to, nil
			}
			a.engines.fail(nil)
			a.tellStopped(ctx, nil)
		case <-owned.Changes():
		}
	}
}

func (a *App) runEngine(ctx context.Context, owned *subscription, d upgradestate.Deployment, to string) error {
	e, err := a.newEngine(owned, d, to)
	if err != nil {
		return err
	}
	return a.run(ctx, e)
}

// newEngine makes the engine that syncs d's current version to another, and has it follow
// the one that runs.
func (a *App) newEngine(owned *subscription, d upgradestate.Deployment, to string) (*syncer.Engine, error) {
	dir, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return nil, err
	}
	source, target := a.namespaces[d.CurrentVersion], a.namespaces[to]
	if source == nil || target == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", d.CurrentVersion, to)
	}
	followed := a.replaced
	if a.opts.reads {
		followed = nil // the source is somebody else's to follow
	}
	e := syncer.New(syncer.Parts{
		Source: source, Target: target, Direction: dir, Deployments: a.deployment, Journal: a.deployment,
		Ownership: owned, Comparer: verify.New(source, target, dir), Lease: a.pool.Lease, Log: a.log,
		TargetLacks: func() string { return a.collections.Lacks(d.Epoch, to) },
		Pacer:       a.pacer(source, target), Tracer: a.opts.Tracer, Replaced: followed, SourceLacks: func() string { return a.replacements.text() },
		Lives: func(ctx context.Context) error { return a.lives(ctx, d.CurrentVersion, to) },
	}, syncer.Config{
		Owner: a.opts.ID, Epoch: d.Epoch, Ring: d.RingSize, Workers: a.cfg.Copy.Workers, Page: a.cfg.Copy.Page,
		Copy: a.copies(d, to), Snapshot: toSnapshot(d), LateDeletes: a.engines.late(),
		ShowValues: a.cfg.ShowValues, LagBound: a.cfg.Switch.MaxLag,
	})
	a.engines.replace(e)
	return e, nil
}

// copies reports whether an engine begins before an upgrade does. The reverse sync is kept, and
// what a switch ended watched, whether or not copying forward was asked for. What a switch to
// a snapshot has left stays as it is.
func (a *App) copies(d upgradestate.Deployment, to string) bool {
	last := d.LastSwitch
	if last != nil && last.Snapshot && last.From == to {
		return false
	}
	return a.cfg.Copy.Auto || last != nil && (last.From == to || last.From == d.CurrentVersion)
}

// toSnapshot reports whether the upgrade that runs syncs nothing.
func toSnapshot(d upgradestate.Deployment) bool { return d.Upgrade != nil && d.Upgrade.Snapshot }

func (a *App) run(ctx context.Context, e *syncer.Engine) error {
	err := e.Run(ctx)
	a.engines.end(e, err)
	return err
}
