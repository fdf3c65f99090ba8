// Package engines runs the sync engines of one controller, and its share of data updates.
//
// It follows the record: it starts the engine of the direction that the record asks for, stops it
// when the record asks for another one, and publishes why the sync of its shards has stopped.
//
// Begin to read at Runner.Run.
//
// It is not for users and may change with any version.
package engines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Collections knows what collections of the target lack besides records.
type Collections interface {
	Lacks(epoch uint64, version string) string
}

// Provisioning makes the collections of a direction, and announces upgrades.
type Provisioning interface {
	// MustAnnounce reports whether the upgrades of the present direction are not announced yet.
	MustAnnounce(d upgradestate.Deployment) bool
	// Announce announces every possible upgrade, with the collections of both sides.
	Announce(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error)
	// EnsureCollections creates missing collections on both sides of a direction.
	EnsureCollections(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, transform.Direction, error)
}

// Settings are those of a controller that concern its engines.
type Settings struct {
	ID            string // name of this controller
	Workers, Page int    // see syncer.Config
	MaxLag        time.Duration
	ShowValues    bool
	Pacing        throttle.Config // limits for bulk work, without measurement of databases
	Turns         *throttle.Turns // of the copies in this process; nil: no limit
	Unthrottled   bool            // turns off the measurement
	Tracer        trace.Tracer    // nil: no spans
}

// Parts are the parts of a controller that a Runner uses.
type Parts struct {
	Deployments  *deployment.Store
	Registry     *transform.Registry
	Namespaces   map[string]record.Namespace // by version
	Pool         *shards.Pool
	Collections  Collections
	Provisioning Provisioning
	Rotation     backfill.Rotation   // the data update that rotates keys
	Keys         transform.KeyFinder // of other deployments
	// Target returns the version to which the record's current version is synced.
	Target func(d upgradestate.Deployment) (version string, ok bool)
	// Copies reports whether an engine may start before an upgrade begins.
	Copies func(d upgradestate.Deployment, to string) bool
	// Lives increments the beats in databases, before work on them counts as done.
	Lives func(ctx context.Context, versions ...string) error
	// Replaced follows a collection that was replaced. Nil: others follow it. See syncer.Parts.
	Replaced func(ctx context.Context, seen upgradestate.Deployment, what *record.ReplacedError) error
	// SourceLacks describes the replaced collections that are not followed yet.
	SourceLacks func() string
	Log         *zap.Logger
}

// Runner runs the engine of the direction that the record asks for, and this controller's share of
// data updates. Other methods than Run may be called at any time.
type Runner struct {
	Parts
	cfg     Settings
	engines running
}

// New returns a Runner that has not started.
func New(p Parts, cfg Settings) *Runner { return &Runner{Parts: p, cfg: cfg} }

// Ready returns why no engine runs, or nil.
func (r *Runner) Ready() error { return r.engines.ready() }

// Fail records why no engine can start.
func (r *Runner) Fail(problem error) { r.engines.fail(problem) }

// Progress returns the progress of the shards of this controller.
func (r *Runner) Progress() []syncer.Progress { return r.engines.progress() }

// Stages returns the time that the running engine has spent copying, by stage.
func (r *Runner) Stages() map[syncer.Stage]time.Duration { return r.engines.stages() }

// retry is the pause after an engine has failed. The engine itself retries temporary
// failures, so a failure that ends it needs a person.
const retry = 10 * time.Second

// Run runs the engine of the direction that the record asks for. The engine of the previous
// direction may run next to it for a while, to watch for late deletes.
func (r *Runner) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	defer func() { stop(); _ = g.Wait() }() // runUntilPassed receives the errors of engines
	// Around a flip two engines run, and each needs the signals of the pool.
	owned := newOwnership(r.Pool)
	g.Go(func() error { return owned.run(ctx) })
	g.Go(func() error { return r.update(ctx, owned) })
	idle := owned.subscribe()
	defer owned.unsubscribe(idle)
	if err := r.watchLate(ctx, &g, owned); err != nil {
		return err
	}
	var failing reconcile.Complaint // a database may be away for long: log each problem once
	for {
		d, to, err := r.awaitDirection(ctx, idle)
		if err != nil {
			return err
		}
		// Announce first: no upgrade of this direction can begin before that.
		if r.Provisioning.MustAnnounce(d) {
			_, err = r.Provisioning.Announce(ctx, d)
		} else {
			err = r.runUntilPassed(ctx, &g, owned, d, to)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.engines.fail(err)
		// Another transformation or another etcd does not go away by waiting: end the process.
		if errors.Is(err, syncer.ErrOtherTransform) {
			return fmt.Errorf("%w: run the same binary and lenses everywhere", err)
		}
		if identity.IsElsewhere(err) {
			return err
		}
		if err == nil {
			failing.Over()
			continue
		}
		// The engine's last report, perhaps "ready", must not stand while the engine rests.
		r.tellStopped(ctx, err)
		if failing.News(err) {
			r.Log.Error("sync has stopped and will be retried", zap.String("version", to), zap.Error(err), zap.Duration("every", retry))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// runUntilPassed runs an engine until it ends or until the record asks for another direction. After
// a flip the old engine goes on next to its successor, to watch for late deletes. If the record no
// longer wants the target, runUntilPassed first stops the engine.
func (r *Runner) runUntilPassed(ctx context.Context, g *errgroup.Group, owned *ownership, d upgradestate.Deployment, to string) error {
	d, _, err := r.Provisioning.EnsureCollections(ctx, d, to)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	running, end := context.WithCancel(ctx)
	g.Go(func() error {
		defer end()
		mine := owned.subscribe()
		defer owned.unsubscribe(mine)
		ended <- r.runEngine(running, mine, d, to)
		return nil
	})
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := r.Deployments.Watch(watching)
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
			if wanted, ok := r.Target(now); !ok || wanted != to || toSnapshot(now) != toSnapshot(d) {
				end()
				return <-ended
			}
			if r.Provisioning.MustAnnounce(now) { // this process started during an upgrade that was then aborted
				if _, err := r.Provisioning.Announce(ctx, now); err != nil {
					r.Log.Warn("some upgrades are not announced", zap.Error(err))
				}
			}
		}
	}
}

// watchLate restarts the engine of the previous direction, in a process that started after the
// latest switch. It does so only if the fence of the old version lets deletes through. The engine
// ends by itself.
func (r *Runner) watchLate(ctx context.Context, g *errgroup.Group, owned *ownership) error {
	d, err := r.Deployments.Get(ctx)
	if err != nil || d.LastSwitch == nil {
		return err
	}
	ended, last := d, d.LastSwitch
	// Show the engine the record as it was before the switch: one epoch earlier, other version
	// active.
	ended.Epoch, ended.CurrentVersion = d.Epoch-1, last.From
	source, _ := d.Namespace(last.From)
	if !last.Synced() || r.Namespaces[last.From] == nil || r.Namespaces[last.To] == nil || !slices.ContainsFunc(source.Kinds, syncer.PassesDeletes) {
		return nil
	}
	mine := owned.subscribe()
	e, err := r.newEngine(mine, ended, last.To)
	if err != nil {
		owned.unsubscribe(mine)
		r.Log.Warn("cannot watch for late deletes", zap.Error(err))
		return nil
	}
	g.Go(func() error {
		defer owned.unsubscribe(mine)
		if err := r.run(ctx, e); err != nil {
			r.Log.Warn("the watch for late deletes has ended", zap.Error(err))
		}
		return nil
	})
	return nil
}

// awaitDirection waits until the record asks for a sync, or until upgrades must be announced.
// Meanwhile no engine runs, so it releases the shards that must move to other controllers.
func (r *Runner) awaitDirection(ctx context.Context, owned *subscription) (d upgradestate.Deployment, to string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := r.Deployments.Watch(watching)
	for {
		// An engine would release these shards. Without one, the other controllers would wait for
		// ever.
		for _, n := range r.Pool.Leaving() {
			if err := r.Pool.Release(ctx, n); err != nil {
				return d, "", fmt.Errorf("release shard %d: %w", n, err)
			}
		}
		select {
		case <-ctx.Done():
			return d, "", ctx.Err()
		case d = <-watch:
			if to, ok := r.Target(d); d.Name != "" && (ok || r.Provisioning.MustAnnounce(d)) {
				return d, to, nil
			}
			r.engines.fail(nil)
			r.tellStopped(ctx, nil)
		case <-owned.Changes():
		}
	}
}

func (r *Runner) runEngine(ctx context.Context, owned *subscription, d upgradestate.Deployment, to string) error {
	e, err := r.newEngine(owned, d, to)
	if err != nil {
		return err
	}
	return r.run(ctx, e)
}

// newEngine creates the engine that syncs d's current version to another, and makes it the running
// one.
func (r *Runner) newEngine(owned *subscription, d upgradestate.Deployment, to string) (*syncer.Engine, error) {
	dir, err := r.Registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return nil, err
	}
	source, target := r.Namespaces[d.CurrentVersion], r.Namespaces[to]
	if source == nil || target == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", d.CurrentVersion, to)
	}
	var e *syncer.Engine
	e = syncer.New(syncer.Parts{
		Source: source, Target: target, Direction: dir, Deployments: r.Deployments, Journal: r.Deployments,
		Ownership: owned, Comparer: verify.New(source, target, dir), Lease: r.Pool.Lease, Log: r.Log,
		TargetLacks: func() string { return r.Collections.Lacks(d.Epoch, to) },
		Pacer:       r.pacer(source, target), Tracer: r.cfg.Tracer, Replaced: r.Replaced, SourceLacks: r.SourceLacks,
		Lives: func(ctx context.Context) error { return r.Lives(ctx, d.CurrentVersion, to) },
	}, syncer.Config{
		Owner: r.cfg.ID, Epoch: d.Epoch, Ring: d.RingSize, Workers: r.cfg.Workers, Page: r.cfg.Page,
		Copy: r.Copies(d, to), Snapshot: toSnapshot(d), LateDeletes: func(shard int) int64 { return r.engines.late(shard, e) },
		ShowValues: r.cfg.ShowValues, LagBound: r.cfg.MaxLag,
	})
	r.engines.replace(e)
	return e, nil
}

// toSnapshot reports whether the running upgrade switches to a snapshot and syncs nothing.
func toSnapshot(d upgradestate.Deployment) bool { return d.Upgrade != nil && d.Upgrade.Snapshot }

func (r *Runner) run(ctx context.Context, e *syncer.Engine) error {
	err := e.Run(ctx)
	r.engines.end(e, err)
	return err
}

// pacer returns the Pacer for an engine's bulk work. A database without record.Monitor is not
// measured.
func (r *Runner) pacer(source, target record.Namespace) *throttle.Pacer {
	cfg := r.cfg.Pacing
	cfg.Turns = r.cfg.Turns
	if !r.cfg.Unthrottled {
		cfg.Source, _ = source.(record.Monitor)
		cfg.Target, _ = target.(record.Monitor)
	}
	return throttle.New(cfg)
}
