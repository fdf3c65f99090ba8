// Package controller is one db-controller process. It connects etcd and the databases with the
// sync engine, the switch driver and the Deployment API, and runs them until its context ends.
//
// # Terms
//
//   - A deployment is one service in one region. Its record in etcd says which version serves.
//   - A namespace is the set of collections of one version in one database. Its collections are
//     called kinds.
//   - A direction syncs one version (source) to another (target). The epoch counts directions: each
//     switch adds one.
//   - An engine runs one direction for the shards that this controller owns.
//   - A mark is a document in a database that names its deployment and version. The beat is a
//     counter next to it. A low beat shows that the database was restored from a backup.
//   - A fence keeps late writers out of collections that no longer serve. The seal is the last
//     fence of a switch, on the source and on the target.
//   - A parked group could not be transformed. It blocks the switch until it is fixed, or until an
//     operator waives it.
//
// The package makes no decisions of its own. The Deployment record decides which versions to sync,
// package shards assigns shards to controllers, and package switchover decides when to switch.
//
// # Guarantees
//
//   - It checks the configuration, the servers and the data before it changes anything.
//   - It uses a database only if the Deployment record names that database, or none yet.
//   - One controller leads at a time and drives upgrades. If two overlap, compare-and-swap on the
//     record keeps them from harming each other.
//
// # What it does not own
//
// It does not own the sync engine (syncer), the switch protocol (switchover), the identity
// of databases (identity) or the shape of collections (collections). It also does not open
// listeners: the caller passes them as Doors.
//
// # Parts
//
// App starts and wires the parts. Each has the few things that it needs, and one job:
//
//   - firstStart chooses the version at which a deployment begins.
//   - provisioning creates collections, and announces the upgrades that become possible.
//   - marks checks that the databases are those in the record.
//   - beats notices that a database was restored, and handles it.
//   - fences keeps old versions closed, and records breaches.
//   - successors follows the collections that applications have replaced.
//   - adoption accepts the collections that the cluster has moved.
//   - wayBack knows why a rollback is not possible now.
//   - imports looks up keys of other deployments.
//   - recordWatch notices that etcd no longer has the record.
//
// The parts in packages of their own are cleanup (retired versions, tombstones), comparison
// (verification), engines (the sync), following (updates that begin by themselves), formernames
// (who still uses old names), keys (encryption), metrics and rollouts.
//
// Begin to read at App.Run, App.work and App.lead.
//
// It is not for users and may change with any version.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/controller/comparison"
	"dbcontroller.dev/internal/control/controller/engines"
	"dbcontroller.dev/internal/control/controller/following"
	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/control/controller/rollouts"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// App is one controller process.
type App struct {
	leading atomic.Bool // true while this controller drives upgrades

	cfg      Settings
	opts     Options
	registry *transform.Registry
	store    coord.Store
	backend  Backend
	log      *zap.Logger // with the controller and its deployment
	base     *zap.Logger // without them

	deployment *deployment.Store
	*connections
	waiting waiting     // why this process does not work yet
	running atomic.Bool // prepare has ended
	started start
	pool    *shards.Pool

	marks        *marks
	beats        *beats
	fences       *fences
	successors   *successors
	adoption     *adoption
	wayBack      *wayBack
	imports      *imports
	following    *following.Follower
	first        *firstStart
	provisioning *provisioning
	engines      *engines.Runner
	comparison   *comparison.Comparison

	// collections keeps the indexes, options and names of collections as the record says.
	collections *collections.Maintainer
	keys        *keys.Keeper // keeps records under the configured keys
	hooks       *hooks.Hooks // delivers events while this controller leads
	incarnation string       // of the deployment in etcd; set by prepare
}

// Run works until ctx ends, and then returns nil. It checks the configuration, the servers and the
// data before it changes anything, and returns an error if they are faulty. Later, it returns an
// error if etcd loses the deployment, or if another process runs another transformation. If doors
// is nil, the controller accepts no calls.
func (a *App) Run(ctx context.Context, doors Doors) error {
	if doors == nil {
		doors = closed{}
	}
	// The doors open first: waiting for databases may take long, and the health endpoint reports it
	// meanwhile.
	defer a.started.over()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return doors.Run(ctx) })
	g.Go(func() error { return a.control(ctx, doors) })
	// The end of ctx is a normal stop.
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// control serves the Deployment API and does the controller's work, as far as the reachable
// databases allow.
func (a *App) control(ctx context.Context, doors Doors) error {
	closeAll := a.connect(ctx)
	defer closeAll()
	service := api.New(a.store, a.deployment, api.Config{
		Upgrades: a, Verifier: a.comparison, Updates: updates{a.registry, a.deployment, a.keys, a.imports}, Rehearser: a.rehearser(), Planner: a.planner(), Loss: a.comparison, Trier: a, Inspector: a.inspector(), Log: a.log,
		Policy: upgradestate.Policy{Hold: a.cfg.Switch.Policy.Hold}, Initial: a.first, Waits: a.waits, RollbackLacks: a.collections.RollbackLacks, ViewsLeft: a.collections.ViewsLeft, BackAway: a.wayBack.BackAway, Starting: a.starting, Build: a.opts.Build, Encryption: a.keys.Shown, Following: a.following.Shown, KeysLack: a.keys.Lack, KindsLack: a.KindsLack, ServedLost: a.wayBack.ServedLost, RetireLacks: a.retirement().Lacks,
		RolloutChecks: slices.Collect(maps.Keys(a.cfg.RolloutChecks)),
	})
	a.log.Info("controller listens", doors.Addresses()...)
	g, ctx := errgroup.WithContext(ctx)
	// The API serves before the databases answer: an operator may have to abort an upgrade.
	g.Go(func() error { return service.Run(ctx) })
	if warnings := doors.Warnings(); len(warnings) > 0 {
		presence := deployment.NewPresence(a.deployment)
		_ = presence.AnnounceInsecure(ctx, a.opts.ID, warnings) // as soon as there is a lease
		g.Go(func() error { return presence.Run(ctx) })
	}
	// A rehearsal has no part in rollouts.
	if !a.opts.quiet {
		g.Go(func() error { return a.rollouts(service).Run(ctx) })
	}
	g.Go(func() error { return a.keys.Announce(ctx) })
	g.Go(func() error { return a.keys.Look(ctx) })
	g.Go(func() error { return doors.Serve(ctx, service) })
	g.Go(func() error { return a.work(ctx) })
	return g.Wait()
}

// rollouts returns the part that carries out rollouts.
func (a *App) rollouts(service *api.Service) *rollouts.Runner {
	return rollouts.New(rollouts.Config{
		ID: a.opts.ID, Coord: a.store, Store: a.deployment, Rollouts: a.opts.Rollouts, Acts: service,
		Checks: a.cfg.RolloutChecks, NoWayBack: a.noWayBack, Look: a.opts.RolloutLook, Log: a.log,
	})
}

// knownRollouts returns the rollouts that this process has seen last.
func (a *App) knownRollouts() []rollout.Rollout {
	all, _ := a.opts.Rollouts.Newest()
	return all
}

// noWayBack returns why no rollback could lead to a version that was left, "" if one could.
func (a *App) noWayBack(version string) string {
	if db, configured := a.cfg.Database(version); !configured || db.Disabled {
		return fmt.Sprintf("%s is disabled or missing in the configuration, so it would not follow: enable it", version)
	}
	return ""
}

// work prepares the deployment, and then owns shards, syncs and leads. If it must wait for a
// database, it leads at once, because an operator may have to abort an upgrade meanwhile.
func (a *App) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	var leading sync.Once
	lead := func() { leading.Do(func() { g.Go(func() error { return a.lead(ctx) }) }) }
	g.Go(func() error {
		d, err := a.awaitPrepared(ctx, lead)
		if err != nil {
			return err
		}
		a.running.Store(true)
		a.started.over()
		a.log.Info("controller runs", zap.String("version", d.CurrentVersion))
		// Ownership ends after the engine, so that the engine can store its last checkpoints under
		// the locks of its shards.
		owning, release := context.WithCancel(context.WithoutCancel(ctx))
		g.Go(func() error { return a.pool.Run(owning) })
		g.Go(func() error {
			defer release()
			return a.engines.Run(ctx)
		})
		// These loops run on every controller. They share the work through the record.
		g.Go(func() error { return a.collections.KeepIndexes(ctx) })
		g.Go(func() error { return a.collections.KeepBack(ctx) })
		g.Go(func() error { return a.collections.KeepViews(ctx) })
		g.Go(func() error { return a.provisioning.announcePostponed(ctx) })
		g.Go(func() error { return a.openRest(ctx) })
		// A rehearsal or a plan has a coordination store of its own, which no other process
		// empties.
		if !a.opts.reads && !a.opts.alone {
			g.Go(func() error {
				return recordWatch{a.deployment, a.incarnation, cmp.Or(a.opts.BeatEvery, checkRecordEvery), a.log}.outlived(ctx)
			})
			g.Go(func() error { return a.wayBack.watchBack(ctx) })
		}
		// A rehearsal must not update records of others, nor follow switches of its own.
		if !a.opts.reads && !a.opts.alone && !a.opts.quiet {
			g.Go(func() error { return a.following.Run(ctx) })
		}
		if !a.opts.reads {
			g.Go(func() error { return a.successors.followReplaced(ctx) })
		}
		lead()
		return nil
	})
	return g.Wait()
}

// Started is closed when the start is over: the controller works, waits for a database, or has ended.
// A process with many controllers then starts the next one.
func (a *App) Started() <-chan struct{} { return a.started.done() }

// Ready returns nil while the controller works or stands by, and otherwise an error with the reason.
// A controller without a shard stands by if other controllers own all of them. With fewer shards than
// controllers it must count as ready: otherwise a rolling update would wait for it for ever.
func (a *App) Ready() error {
	if err := a.waiting.why(); err != nil {
		return fmt.Errorf("waiting for the databases: %w", err)
	}
	if !a.running.Load() {
		return errors.New("waiting for the databases")
	}
	if err := a.missing(); err != nil {
		return fmt.Errorf("waiting for a database: %w", err)
	}
	if len(a.pool.Owned()) == 0 && !a.pool.StandsBy() {
		return errors.New("waiting for shards: not all of them have an owner, or etcd does not answer")
	}
	return a.engines.Ready()
}

// lead campaigns for leadership. While this controller leads, it drives upgrades and cleans up
// after them.
func (a *App) lead(ctx context.Context) error {
	// The driver takes all versions: a rollback may start while this controller leads.
	fencers := map[string]record.Fencer{}
	for v, ns := range a.namespaces {
		fencers[v] = ns
	}
	return shards.Lead(ctx, a.store, a.deployment.DriverKey(), a.opts.ID, a.log, func(ctx context.Context) error {
		a.leading.Store(true)
		defer a.leading.Store(false)
		g, ctx := errgroup.WithContext(ctx)
		prover := a.prover()
		// A rehearsal that only reads must not write, and a proof needs scratch collections.
		if !a.opts.reads {
			g.Go(func() error { return prover.Run(ctx) })
		}
		g.Go(func() error {
			return switchover.New(deployment.ForDriver{Store: a.deployment}, fencers, switchover.Config{
				HoldTimeout: a.cfg.Switch.HoldTimeout, Policy: a.cfg.Switch.Policy,
				Checks: preflight.Checks{Servers: a.deployment.Servers, Collections: a.collections, Prover: prover, Lives: a.beats.lives}, Position: a.position,
				Target: comparison.Intruders{Comparison: a.comparison, Position: a.position},
				Tracer: a.opts.Tracer, Forecaster: prover, Publish: prover.Publish, News: prover.News(), Marks: counted{a.marks.keeper(), a.beats}, Waits: a.collectionWaits,
			}, a.log).Run(ctx)
		})
		g.Go(func() error { return a.tombstones().Run(ctx) })
		g.Go(func() error { return a.retirement().Run(ctx) })
		g.Go(func() error { return a.fences.uphold(ctx) })
		if !a.opts.reads && !a.opts.alone {
			g.Go(func() error { return a.formerNames().Run(ctx) })
			g.Go(func() error { return a.adoption.followMoved(ctx) })
		}
		g.Go(func() error { return a.collections.KeepExpiry(ctx) })
		g.Go(func() error { return a.provisioning.withdraw(ctx) })
		g.Go(func() error { return a.marks.keepMarks(ctx) })
		g.Go(func() error { return a.beats.counts(ctx) })
		if !a.opts.reads {
			g.Go(func() error { return a.keys.Keep(ctx) })
		}
		// Only the leader delivers events, so that no event arrives from several controllers.
		g.Go(func() error { return a.hooks.Run(ctx) })
		return g.Wait()
	})
}

// Verify compares all synced records of source and target.
func (a *App) Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error) {
	return a.comparison.Verify(ctx, progress)
}

// TransformHash returns the hash of the transformation between two versions. The API compares it
// between controllers.
func (a *App) TransformHash(from, to string) (string, error) {
	dir, err := a.registry.Direction(from, to)
	if err != nil {
		return "", err
	}
	return dir.Hash(), nil
}
