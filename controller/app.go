// Package controller is one db-controller process: it wires configuration, etcd,
// databases, transformers, the sync engine, the switch driver and the Deployment API
// together, and runs them until it is told to stop.
//
// It takes no decision of its own: what to sync follows from the Deployment record, who
// syncs what from shards, when to switch from upgradestate.
//
// It is not for users and may change with any version.
package controller

import (
	"cmp"
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

	"dbcontroller.dev/collections"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/deployment/api"
	"dbcontroller.dev/hooks"
	"dbcontroller.dev/preflight"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Options are what one controller is told beyond the settings, which all have.
type Options struct {
	ID    string              // of this controller; unique among those alive
	Carry collections.Carries // how targets get the options and indexes of fixed-name kinds
	// StartupWait is how long the first start of a deployment waits for databases that
	// cannot be reached, or that have no primary, before it gives up: a mistake in the
	// configuration looks like that. A deployment that has lived waits as long as it takes.
	StartupWait time.Duration
	// Aside makes a coordination store of its own for each rehearsal. It goes with the process.
	Aside func() coord.Store
	Build api.Build // what runs, for those who ask
	// Tracer makes spans of what the controller does; nil makes none. Rehearsals make none.
	Tracer trace.Tracer
	// Wrap, if not nil, stands between the controller and a version's database. Tests
	// stop a controller with it at a chosen place.
	Wrap func(version string, ns record.Namespace) record.Namespace

	// reads: it stands for a rehearsal over the real source, and never switches. Nothing is
	// tried in the databases, not even in scratch collections.
	reads bool
	// alone: it only reads, and nobody else of its deployment takes part.
	alone bool
	// quiet: it is part of a rehearsal, which no client may feel.
	quiet bool
}

// App is one controller process.
type App struct {
	leading atomic.Bool // this controller drives upgrades

	cfg      Settings
	opts     Options
	registry *transform.Registry
	store    coord.Store
	backend  Backend
	log      *zap.Logger

	deployment *deployment.Store
	namespaces map[string]record.Namespace // by version
	scratches  map[string]Space            // the same without Options.Wrap
	quiet      map[string]Space            // the same, of which nobody else on the server feels anything
	databases  map[string]Connection       // what all of them reach
	// imported are the databases of other deployments, by service and version.
	imported  map[string]map[string]Connection
	waiting   waiting     // for what this process does not do its work yet
	encrypted encryptions // as it is stored, for people
	postponed postponed   // upgrades that are announced when their databases are there
	running   atomic.Bool // pool is there
	pool      *shards.Pool
	engines   engines
	// replacements are those of applications' collections that are not followed yet.
	replacements replacements
	pulses       pulses // of the databases, by which a restored one is noticed
	// collections keeps indexes, options and names of the collections as the record wants them.
	collections *collections.Maintainer
	hooks       *hooks.Hooks // that are told of what happens, while this controller leads
	incarnation string       // of the deployment in etcd, since it is prepared
	announced   uint64       // the epoch whose upgrades were announced; of prepare, then of sync
}

// New makes a controller. The coordination store is the caller's to close.
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

// Run works until ctx ends, which is no error. What is wrong with the configuration, the
// servers or the data is an error before anything was changed. Without doors nobody can call it.
func (a *App) Run(ctx context.Context, doors Doors) error {
	if doors == nil {
		doors = closed{}
	}
	// From the beginning: databases may let one wait, and the port says so.
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return doors.Run(ctx) })
	g.Go(func() error { return a.control(ctx, doors) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// control answers the Deployment API, and does a controller's work as far as the databases
// that are there allow.
func (a *App) control(ctx context.Context, doors Doors) error {
	closeAll := a.connect(ctx)
	defer closeAll()
	service := api.New(a.store, a.deployment, api.Config{
		Upgrades: a, Verifier: a, Updates: updates{a}, Rehearser: a.rehearser(), Planner: a.planner(), Loss: a, Log: a.log,
		Policy: upgradestate.Policy{Hold: a.cfg.Switch.Hold}, Initial: a, Waits: a.waits, RollbackLacks: a.collections.RollbackLacks, ViewsLeft: a.collections.ViewsLeft, Starting: a.starting, Build: a.opts.Build, Encryption: a.encrypted.all, KeysLack: a.KeysLack, KindsLack: a.KindsLack, ServedLost: a.ServedLost,
	})
	a.log.Info("controller listens", append([]zap.Field{zap.String("deployment", a.cfg.Deployment)}, doors.Addresses()...)...)
	g, ctx := errgroup.WithContext(ctx)
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

// work prepares, and then owns shards, syncs and leads. Where it has to wait for a database
// it leads from the beginning: an upgrade may have to be aborted meanwhile.
func (a *App) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// The leader asks it for its lease, from the beginning.
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
		// Ownership outlives the engine, so that its last checkpoints are still stored under
		// its locks when shards are handed over.
		owning, release := context.WithCancel(context.WithoutCancel(ctx))
		g.Go(func() error { return a.pool.Run(owning) })
		g.Go(func() error {
			defer release()
			return a.sync(ctx)
		})
		g.Go(func() error { return a.collections.KeepIndexes(ctx) })
		g.Go(func() error { return a.collections.KeepBack(ctx) })
		g.Go(func() error { return a.collections.KeepViews(ctx) })
		g.Go(func() error { return a.announcePostponed(ctx) })
		g.Go(func() error { return a.openRest(ctx) })
		if !a.opts.reads && !a.opts.alone {
			g.Go(func() error { return a.outlived(ctx) })
		}
		if !a.opts.reads {
			g.Go(func() error { return a.followReplaced(ctx) })
		}
		lead()
		return nil
	})
	return g.Wait()
}

// Ready returns nil when the controller does its work, and otherwise what it waits for.
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

// lead drives upgrades, and cleans up after them, whenever this controller is the one that does.
func (a *App) lead(ctx context.Context) error {
	fencers := map[string]record.Fencer{}
	for v, ns := range a.namespaces {
		fencers[v] = ns
	}
	return shards.Lead(ctx, a.store, a.deployment.DriverKey(), a.opts.ID, a.log, func(ctx context.Context) error {
		a.leading.Store(true)
		defer a.leading.Store(false)
		g, ctx := errgroup.WithContext(ctx)
		prover := a.prover()
		if !a.opts.reads {
			g.Go(func() error { return prover.Run(ctx) })
		}
		g.Go(func() error {
			return switchover.New(deployment.ForDriver{Store: a.deployment}, fencers, switchover.Config{
				HoldTimeout: a.cfg.Switch.HoldTimeout, Deadline: a.cfg.Switch.Deadline, MaxHold: a.cfg.Switch.MaxHold, Retries: cmp.Or(a.cfg.Switch.Retries, -1),
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
		}
		g.Go(func() error { return a.collections.KeepExpiry(ctx) })
		g.Go(func() error { return a.withdraw(ctx) })
		g.Go(func() error { return a.keepMarks(ctx) })
		g.Go(func() error { return a.counts(ctx) })
		if !a.opts.reads {
			g.Go(func() error { return a.keepKeys(ctx) })
		}
		g.Go(func() error { return a.hooks.Run(ctx) })
		return g.Wait()
	})
}

// position is where the changes of a version's database are now, as the record keeps it.
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

// TransformHash identifies for the API how this controller transforms from one version to another.
func (a *App) TransformHash(from, to string) (string, error) {
	dir, err := a.registry.Direction(from, to)
	if err != nil {
		return "", err
	}
	return dir.Hash(), nil
}
