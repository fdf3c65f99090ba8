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

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// engines holds the running engine, or the reason why none runs.
type engines struct {
	mu      sync.Mutex
	now     *syncer.Engine
	problem error
	stopped []syncer.Progress // progress of shards, as published when sync stopped with problem
}

// replace sets the running engine. The earlier engine may still watch for late deletes, and hands
// them over to the new one.
func (e *engines) replace(now *syncer.Engine) {
	e.mu.Lock()
	before := e.now
	e.now, e.problem, e.stopped = now, nil, nil
	e.mu.Unlock()
	// Not under e.mu, because HandOver takes the lock of an engine.
	if before != nil {
		before.HandOver(now)
	}
}

// late returns the late-delete counter of the running engine, for its successor. It returns nil if
// no engine runs.
func (e *engines) late() func(shard int) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == nil {
		return nil
	}
	return e.now.LateDeletes
}

// end records that an engine has ended, and why. It ignores an engine that was replaced.
func (e *engines) end(ended *syncer.Engine, problem error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == ended {
		e.now, e.problem = nil, problem
	}
}

// fail records why no engine could start.
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

// stages returns the time that the running engine has spent copying, by stage.
func (e *engines) stages() map[syncer.Stage]time.Duration {
	e.mu.Lock()
	now := e.now
	e.mu.Unlock()
	if now == nil {
		return nil
	}
	return now.Stages()
}

// retryEngine is the pause after an engine has failed. The engine itself retries temporary
// failures, so a failure that ends it needs a person.
const retryEngine = 10 * time.Second

// sync runs the engine of the direction that the record asks for. The engine of the previous
// direction may run next to it for a while, to watch for late deletes.
func (a *App) sync(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	defer func() { stop(); _ = g.Wait() }() // runUntilPassed receives the errors of engines
	// Around a flip two engines run, and each needs the signals of the pool.
	owned := newOwnership(a.pool)
	g.Go(func() error { return owned.run(ctx) })
	g.Go(func() error { return a.update(ctx, owned) })
	idle := owned.subscribe()
	defer owned.unsubscribe(idle)
	if err := a.watchLate(ctx, &g, owned); err != nil {
		return err
	}
	var failing reconcile.Complaint // a database may be away for long: log each problem once
	for {
		d, to, err := a.awaitDirection(ctx, idle)
		if err != nil {
			return err
		}
		// Announce first: no upgrade of this direction can begin before that.
		if a.mustAnnounce(d) {
			_, err = a.announce(ctx, d)
		} else {
			err = a.runUntilPassed(ctx, &g, owned, d, to)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.engines.fail(err)
		// Another transformation or another etcd does not go away by waiting: end the process.
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
		// The engine's last report, perhaps "ready", must not stand while the engine rests.
		a.tellStopped(ctx, err)
		if failing.News(err) {
			a.log.Error("sync has stopped and will be retried", zap.String("version", to), zap.Error(err), zap.Duration("every", retryEngine))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEngine):
		}
	}
}

// runUntilPassed runs an engine until it ends or until the record asks for another direction. After
// a flip the old engine goes on next to its successor, to watch for late deletes. If the record no
// longer wants the target, runUntilPassed first stops the engine.
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
			if now.Epoch != d.Epoch { // the direction has ended; the engine finishes by itself
				return nil
			}
			// The target changed within the epoch. The engine must end before another one starts.
			if wanted, ok := a.target(now); !ok || wanted != to || toSnapshot(now) != toSnapshot(d) {
				end()
				return <-ended
			}
			if a.mustAnnounce(now) { // this process started during an upgrade that was then aborted
				if _, err := a.announce(ctx, now); err != nil {
					a.log.Warn("some upgrades are not announced", zap.Error(err))
				}
			}
		}
	}
}

// watchLate restarts the engine of the previous direction, in a process that started after the
// latest switch. It does so only if the fence of the old version lets deletes through. The engine
// ends by itself.
func (a *App) watchLate(ctx context.Context, g *errgroup.Group, owned *ownership) error {
	d, err := a.deployment.Get(ctx)
	if err != nil || d.LastSwitch == nil {
		return err
	}
	ended, last := d, d.LastSwitch
	// Show the engine the record as it was before the switch: one epoch earlier, other version
	// active.
	ended.Epoch, ended.CurrentVersion = d.Epoch-1, last.From
	source, _ := d.Namespace(last.From)
	passes := func(k upgradestate.Kind) bool { return k.Fixed && k.Fence == string(record.FenceValidator) }
	if !last.Synced() || a.namespaces[last.From] == nil || a.namespaces[last.To] == nil || !slices.ContainsFunc(source.Kinds, passes) {
		return nil
	}
	mine := owned.subscribe()
	e, err := a.newEngine(mine, ended, last.To)
	if err != nil {
		owned.unsubscribe(mine)
		a.log.Warn("cannot watch for late deletes", zap.Error(err))
		return nil
	}
	g.Go(func() error {
		defer owned.unsubscribe(mine)
		if err := a.run(ctx, e); err != nil {
			a.log.Warn("the watch for late deletes has ended", zap.Error(err))
		}
		return nil
	})
	return nil
}

// awaitDirection waits until the record asks for a sync, or until upgrades must be announced.
// Meanwhile no engine runs, so it releases the shards that must move to other controllers.
func (a *App) awaitDirection(ctx context.Context, owned *subscription) (d upgradestate.Deployment, to string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := a.deployment.Watch(watching)
	for {
		// An engine would release these shards. Without one, the other controllers would wait for
		// ever.
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

// newEngine creates the engine that syncs d's current version to another, and makes it the running
// one.
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
		followed = nil // the source's own controllers follow replacements
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

// copies reports whether an engine may start before an upgrade begins. Reverse sync and the watch
// after a switch do not depend on copy.auto. A version left by a switch to a snapshot, or before an
// epoch without a switch, is not synced again.
func (a *App) copies(d upgradestate.Deployment, to string) bool {
	last := d.LastSwitch
	if last != nil && !last.Synced() && last.From == to {
		return false
	}
	return a.cfg.Copy.Auto || last != nil && (last.From == to || last.From == d.CurrentVersion)
}

// toSnapshot reports whether the running upgrade switches to a snapshot and syncs nothing.
func toSnapshot(d upgradestate.Deployment) bool { return d.Upgrade != nil && d.Upgrade.Snapshot }

func (a *App) run(ctx context.Context, e *syncer.Engine) error {
	err := e.Run(ctx)
	a.engines.end(e, err)
	return err
}
