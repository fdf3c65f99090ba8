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
// package shards assigns shards to controllers, and package upgradestate decides when to switch.
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
// Begin to read at App.Run, App.work and App.lead.
//
// It is not for users and may change with any version.
package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Options holds the values that differ between the controllers of a deployment, and test hooks.
// Settings holds the shared values.
type Options struct {
	ID    string              // name of this controller; unique among those alive
	Carry collections.Carries // gives targets the options and indexes of fixed-name kinds
	// StartupWait is the time that the first start of a deployment waits for databases that are
	// unreachable or have no primary. A mistake in the configuration looks the same, so the
	// controller then gives up. A deployment that already has namespaces waits without limit.
	StartupWait time.Duration
	// Aside creates a separate coordination store for each rehearsal. The store lives as long as
	// the process. Nil: rehearsals are not possible.
	Aside func() coord.Store
	Build api.Build // build information, for the API
	// Tracer creates spans for the controller's work. Nil creates none. Rehearsals create none.
	Tracer trace.Tracer
	// Wrap, if not nil, wraps each version's database. Tests use it to stop a controller at a
	// chosen place.
	Wrap func(version string, ns record.Namespace) record.Namespace

	// reads marks a rehearsal controller over the real source. It never switches, and tries out
	// nothing in the databases, not even in scratch collections.
	reads bool
	// alone means that the App only reads, and that it is the only process of its deployment.
	alone bool
	// quiet marks a rehearsal controller. Its work must not disturb other clients of the server.
	quiet bool
}

// App is one controller process.
type App struct {
	leading atomic.Bool // true while this controller drives upgrades

	cfg      Settings
	opts     Options
	registry *transform.Registry
	store    coord.Store
	backend  Backend
	log      *zap.Logger

	deployment *deployment.Store
	namespaces map[string]record.Namespace // by version
	scratches  map[string]Space            // by version, without Options.Wrap
	quiet      map[string]Space            // by version; their use does not disturb other clients
	databases  map[string]Connection       // by version; the maps above wrap them
	// imported holds the databases of other deployments, by service and version.
	imported  map[string]map[string]Connection
	waiting   waiting     // why this process does not work yet
	encrypted encryptions // last known encryption state of each version, for the API
	postponed postponed   // upgrades to announce once their databases are open
	running   atomic.Bool // pool is set
	pool      *shards.Pool
	engines   engines
	// replacements holds the replaced collections of applications that no engine follows yet.
	replacements replacements
	// moves holds the moved collections that are not accepted.
	moves  replacements
	back   silence // why the database that a rollback needs does not answer
	pulses pulses  // beat counters of the databases, which reveal a restore
	// collections keeps the indexes, options and names of collections as the record says.
	collections *collections.Maintainer
	hooks       *hooks.Hooks // delivers events while this controller leads
	incarnation string       // of the deployment in etcd; set by prepare
	announced   uint64       // epoch whose upgrades are announced; set by prepare, then sync
}

// New returns a controller that has not started. The caller closes the coordination store.
func New(cfg Settings, registry *transform.Registry, store coord.Store, backend Backend, opts Options, log *zap.Logger) *App {
	a := &App{
		cfg: cfg, opts: opts, registry: registry, store: store, backend: backend, log: log.With(zap.String("controller", opts.ID)),
		deployment: deployment.New(store, cfg.Deployment, deployment.Config{Log: log, By: "controller " + opts.ID}),
		pulses:     pulses{dealing: make(chan struct{}, 1)},
		namespaces: map[string]record.Namespace{}, scratches: map[string]Space{}, quiet: map[string]Space{}, imported: map[string]map[string]Connection{},
	}
	a.hooks = hooks.New(cfg.Hooks, a.deployment, a.log)
	a.collections = collections.New(collections.Parts{
		Deployments: a.deployment, Registry: registry, Carry: opts.Carry, Log: a.log,
		Database: func(version string) collections.Database { return a.namespaces[version] },
		Target:   a.target, Idle: a.idle, Belongs: a.belongs, Views: a.views,
	})
	return a
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
		Upgrades: a, Verifier: a, Updates: updates{a}, Rehearser: a.rehearser(), Planner: a.planner(), Loss: a, Log: a.log,
		Policy: upgradestate.Policy{Hold: a.cfg.Switch.Policy.Hold}, Initial: a, Waits: a.waits, RollbackLacks: a.collections.RollbackLacks, ViewsLeft: a.collections.ViewsLeft, BackAway: a.BackAway, Starting: a.starting, Build: a.opts.Build, Encryption: a.encrypted.all, KeysLack: a.KeysLack, KindsLack: a.KindsLack, ServedLost: a.ServedLost, RetireLacks: a.RetireLacks,
	})
	a.log.Info("controller listens", append([]zap.Field{zap.String("deployment", a.cfg.Deployment)}, doors.Addresses()...)...)
	g, ctx := errgroup.WithContext(ctx)
	// The API serves before the databases answer: an operator may have to abort an upgrade.
	g.Go(func() error { return service.Run(ctx) })
	if warnings := doors.Warnings(); len(warnings) > 0 {
		presence := deployment.NewPresence(a.deployment)
		_ = presence.AnnounceInsecure(ctx, a.opts.ID, warnings) // as soon as there is a lease
		g.Go(func() error { return presence.Run(ctx) })
	}
	g.Go(func() error { return a.announceKeys(ctx) })
	g.Go(func() error { return a.lookAtEncryption(ctx) })
	g.Go(func() error { return doors.Serve(ctx, service) })
	g.Go(func() error { return a.work(ctx) })
	return g.Wait()
}

// work prepares the deployment, and then owns shards, syncs and leads. If it must wait for a
// database, it leads at once, because an operator may have to abort an upgrade meanwhile.
func (a *App) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// lead can start before prepare ends, and needs the pool for its lease.
	a.pool = shards.New(a.store, shards.Config{Prefix: a.deployment.Root(), ID: a.opts.ID, Ring: a.cfg.RingSize, Log: a.log})
	var leading sync.Once
	lead := func() { leading.Do(func() { g.Go(func() error { return a.lead(ctx) }) }) }
	g.Go(func() error {
		d, err := a.awaitPrepared(ctx, lead)
		if err != nil {
			return err
		}
		a.running.Store(true)
		a.log.Info("controller runs", zap.String("deployment", a.cfg.Deployment), zap.String("version", d.CurrentVersion))
		// Ownership ends after the engine, so that the engine can store its last checkpoints under
		// the locks of its shards.
		owning, release := context.WithCancel(context.WithoutCancel(ctx))
		g.Go(func() error { return a.pool.Run(owning) })
		g.Go(func() error {
			defer release()
			return a.sync(ctx)
		})
		// These loops run on every controller. They share the work through the record.
		g.Go(func() error { return a.collections.KeepIndexes(ctx) })
		g.Go(func() error { return a.collections.KeepBack(ctx) })
		g.Go(func() error { return a.collections.KeepViews(ctx) })
		g.Go(func() error { return a.announcePostponed(ctx) })
		g.Go(func() error { return a.openRest(ctx) })
		// A rehearsal or a plan has a coordination store of its own, which no other process
		// empties.
		if !a.opts.reads && !a.opts.alone {
			g.Go(func() error { return a.outlived(ctx) })
			g.Go(func() error { return a.watchBack(ctx) })
		}
		if !a.opts.reads {
			g.Go(func() error { return a.followReplaced(ctx) })
		}
		lead()
		return nil
	})
	return g.Wait()
}

// Ready returns nil while the controller works, and otherwise an error with the reason.
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
	if len(a.pool.Owned()) == 0 {
		return errors.New("waiting for shards: other controllers own all of them, or etcd does not answer")
	}
	return a.engines.ready()
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
				Checks: preflight.Checks{Servers: a.deployment.Servers, Collections: a.collections, Prover: prover, Lives: a.lives}, Position: a.position,
				Target: intruders{a},
				Tracer: a.opts.Tracer, Forecaster: prover, Publish: prover.Publish, News: prover.News(), Marks: counted{a.keeper(), a}, Waits: a.replacements.why,
			}, a.log).Run(ctx)
		})
		g.Go(func() error { return a.purge(ctx) })
		g.Go(func() error { return a.retire(ctx) })
		g.Go(func() error { return a.uphold(ctx) })
		if !a.opts.reads && !a.opts.alone {
			g.Go(func() error { return a.watchNames(ctx) })
			g.Go(func() error { return a.followMoved(ctx) })
		}
		g.Go(func() error { return a.collections.KeepExpiry(ctx) })
		g.Go(func() error { return a.withdraw(ctx) })
		g.Go(func() error { return a.keepMarks(ctx) })
		g.Go(func() error { return a.counts(ctx) })
		if !a.opts.reads {
			g.Go(func() error { return a.keepKeys(ctx) })
		}
		// Only the leader delivers events, so that no event arrives from several controllers.
		g.Go(func() error { return a.hooks.Run(ctx) })
		return g.Wait()
	})
}

// position returns the present change position of a version's database, encoded as in the record.
func (a *App) position(ctx context.Context, version string) (string, error) {
	ns := a.namespaces[version]
	if ns == nil {
		return "", fmt.Errorf("version %s is not configured here", version)
	}
	at, err := ns.Position(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(at)
	return string(text), err
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
