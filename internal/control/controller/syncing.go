package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// syncing runs the engine of the direction that the record asks for, and this controller's share of
// data updates.
type syncing struct {
	*connections
	cfg          Settings
	opts         *Options
	registry     *transform.Registry
	deployment   *deployment.Store
	pool         *shards.Pool
	collections  *collections.Maintainer
	provisioning *provisioning
	successors   *successors
	beats        *beats
	keys         *keys.Keeper
	imports      *imports
	engines      engines
	log          *zap.Logger
}

// retryEngine is the pause after an engine has failed. The engine itself retries temporary
// failures, so a failure that ends it needs a person.
const retryEngine = 10 * time.Second

// sync runs the engine of the direction that the record asks for. The engine of the previous
// direction may run next to it for a while, to watch for late deletes.
func (s *syncing) sync(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	defer func() { stop(); _ = g.Wait() }() // runUntilPassed receives the errors of engines
	// Around a flip two engines run, and each needs the signals of the pool.
	owned := newOwnership(s.pool)
	g.Go(func() error { return owned.run(ctx) })
	g.Go(func() error { return s.update(ctx, owned) })
	idle := owned.subscribe()
	defer owned.unsubscribe(idle)
	if err := s.watchLate(ctx, &g, owned); err != nil {
		return err
	}
	var failing reconcile.Complaint // a database may be away for long: log each problem once
	for {
		d, to, err := s.awaitDirection(ctx, idle)
		if err != nil {
			return err
		}
		// Announce first: no upgrade of this direction can begin before that.
		if s.provisioning.mustAnnounce(d) {
			_, err = s.provisioning.announce(ctx, d)
		} else {
			err = s.runUntilPassed(ctx, &g, owned, d, to)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.engines.fail(err)
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
		s.tellStopped(ctx, err)
		if failing.News(err) {
			s.log.Error("sync has stopped and will be retried", zap.String("version", to), zap.Error(err), zap.Duration("every", retryEngine))
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
func (s *syncing) runUntilPassed(ctx context.Context, g *errgroup.Group, owned *ownership, d upgradestate.Deployment, to string) error {
	d, _, err := s.provisioning.ensureCollections(ctx, d, to)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	running, end := context.WithCancel(ctx)
	g.Go(func() error {
		defer end()
		mine := owned.subscribe()
		defer owned.unsubscribe(mine)
		ended <- s.runEngine(running, mine, d, to)
		return nil
	})
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := s.deployment.Watch(watching)
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
			if wanted, ok := s.cfg.target(now); !ok || wanted != to || toSnapshot(now) != toSnapshot(d) {
				end()
				return <-ended
			}
			if s.provisioning.mustAnnounce(now) { // this process started during an upgrade that was then aborted
				if _, err := s.provisioning.announce(ctx, now); err != nil {
					s.log.Warn("some upgrades are not announced", zap.Error(err))
				}
			}
		}
	}
}

// watchLate restarts the engine of the previous direction, in a process that started after the
// latest switch. It does so only if the fence of the old version lets deletes through. The engine
// ends by itself.
func (s *syncing) watchLate(ctx context.Context, g *errgroup.Group, owned *ownership) error {
	d, err := s.deployment.Get(ctx)
	if err != nil || d.LastSwitch == nil {
		return err
	}
	ended, last := d, d.LastSwitch
	// Show the engine the record as it was before the switch: one epoch earlier, other version
	// active.
	ended.Epoch, ended.CurrentVersion = d.Epoch-1, last.From
	source, _ := d.Namespace(last.From)
	if !last.Synced() || s.namespaces[last.From] == nil || s.namespaces[last.To] == nil || !slices.ContainsFunc(source.Kinds, syncer.PassesDeletes) {
		return nil
	}
	mine := owned.subscribe()
	e, err := s.newEngine(mine, ended, last.To)
	if err != nil {
		owned.unsubscribe(mine)
		s.log.Warn("cannot watch for late deletes", zap.Error(err))
		return nil
	}
	g.Go(func() error {
		defer owned.unsubscribe(mine)
		if err := s.run(ctx, e); err != nil {
			s.log.Warn("the watch for late deletes has ended", zap.Error(err))
		}
		return nil
	})
	return nil
}

// awaitDirection waits until the record asks for a sync, or until upgrades must be announced.
// Meanwhile no engine runs, so it releases the shards that must move to other controllers.
func (s *syncing) awaitDirection(ctx context.Context, owned *subscription) (d upgradestate.Deployment, to string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := s.deployment.Watch(watching)
	for {
		// An engine would release these shards. Without one, the other controllers would wait for
		// ever.
		for _, n := range s.pool.Leaving() {
			if err := s.pool.Release(ctx, n); err != nil {
				return d, "", fmt.Errorf("release shard %d: %w", n, err)
			}
		}
		select {
		case <-ctx.Done():
			return d, "", ctx.Err()
		case d = <-watch:
			if to, ok := s.cfg.target(d); d.Name != "" && (ok || s.provisioning.mustAnnounce(d)) {
				return d, to, nil
			}
			s.engines.fail(nil)
			s.tellStopped(ctx, nil)
		case <-owned.Changes():
		}
	}
}

func (s *syncing) runEngine(ctx context.Context, owned *subscription, d upgradestate.Deployment, to string) error {
	e, err := s.newEngine(owned, d, to)
	if err != nil {
		return err
	}
	return s.run(ctx, e)
}

// newEngine creates the engine that syncs d's current version to another, and makes it the running
// one.
func (s *syncing) newEngine(owned *subscription, d upgradestate.Deployment, to string) (*syncer.Engine, error) {
	dir, err := s.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return nil, err
	}
	source, target := s.namespaces[d.CurrentVersion], s.namespaces[to]
	if source == nil || target == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", d.CurrentVersion, to)
	}
	followed := s.successors.replaced
	if s.opts.reads {
		followed = nil // the source's own controllers follow replacements
	}
	var e *syncer.Engine
	e = syncer.New(syncer.Parts{
		Source: source, Target: target, Direction: dir, Deployments: s.deployment, Journal: s.deployment,
		Ownership: owned, Comparer: verify.New(source, target, dir), Lease: s.pool.Lease, Log: s.log,
		TargetLacks: func() string { return s.collections.Lacks(d.Epoch, to) },
		Pacer:       s.cfg.pacer(source, target), Tracer: s.opts.Tracer, Replaced: followed, SourceLacks: func() string { return s.successors.replacements.text() },
		Lives: func(ctx context.Context) error { return s.beats.lives(ctx, d.CurrentVersion, to) },
	}, syncer.Config{
		Owner: s.opts.ID, Epoch: d.Epoch, Ring: d.RingSize, Workers: s.cfg.Copy.Workers, Page: s.cfg.Copy.Page,
		Copy: s.cfg.copies(d, to), Snapshot: toSnapshot(d), LateDeletes: func(shard int) int64 { return s.engines.late(shard, e) },
		ShowValues: s.cfg.ShowValues, LagBound: s.cfg.Switch.MaxLag,
	})
	s.engines.replace(e)
	return e, nil
}

// toSnapshot reports whether the running upgrade switches to a snapshot and syncs nothing.
func toSnapshot(d upgradestate.Deployment) bool { return d.Upgrade != nil && d.Upgrade.Snapshot }

func (s *syncing) run(ctx context.Context, e *syncer.Engine) error {
	err := e.Run(ctx)
	s.engines.end(e, err)
	return err
}
