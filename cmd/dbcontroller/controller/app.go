// Package controller is one db-controller process: it wires configuration, etcd,
// databases, transformers, the sync engine, the switch driver and the Deployment API
// together, and runs them until it is told to stop.
//
// It takes no decision of its own: what to sync follows from the Deployment record, who
// syncs what from shards, when to switch from upgradestate.
package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller/cmd/internal/operator"
	"dbcontroller/config"
	"dbcontroller/coord"
	"dbcontroller/deployment"
	"dbcontroller/record"
	"dbcontroller/shards"
	"dbcontroller/switchover"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
)

// Options are what the command line says beyond the configuration.
type Options struct {
	ID             string // of this controller; unique among those alive
	APIListen      string // empty: as configured
	OperatorListen string // empty: as configured
	Carry          Carries
	// Wrap, if not nil, stands between the controller and a version's database. Tests
	// stop a controller with it at a chosen place.
	Wrap func(version string, ns record.Namespace) record.Namespace

	// reads: it stands for a rehearsal over the real source, and never switches. Nothing is
	// tried in the databases, not even in scratch collections.
	reads bool
}

// App is one controller process.
type App struct {
	cfg      config.Config
	opts     Options
	registry *transform.Registry
	store    coord.Store
	log      *zap.Logger

	deployment *deployment.Store
	namespaces map[string]record.Namespace // by version
	scratches  map[string]scratchSpace     // the same without Options.Wrap
	running    atomic.Bool                 // the databases are open, and pool is there
	pool       *shards.Pool
	engines    engines
	planning   sync.Mutex // one plan at a time
	indexes    indexing
	expiring   sync.Mutex // one looks at TTL indexes at a time, and changes them
	offered    uint64     // the epoch whose upgrades were announced; of prepare, then of sync
}

// New makes a controller. The coordination store is the caller's to close.
func New(cfg config.Config, registry *transform.Registry, store coord.Store, opts Options, log *zap.Logger) *App {
	if opts.APIListen == "" {
		opts.APIListen = cfg.API
	}
	if opts.OperatorListen == "" {
		opts.OperatorListen = cfg.Operator
	}
	return &App{
		cfg: cfg, opts: opts, registry: registry, store: store, log: log.With(zap.String("controller", opts.ID)),
		deployment: deployment.New(store, cfg.Deployment, deployment.Config{Log: log, By: "controller " + opts.ID}),
		namespaces: map[string]record.Namespace{}, scratches: map[string]scratchSpace{},
	}
}

// Run works until ctx ends, which is no error. What is wrong with the configuration, the
// servers or the data is an error before anything was changed.
func (a *App) Run(ctx context.Context) error {
	api, err := net.Listen("tcp", a.opts.APIListen)
	if err != nil {
		return fmt.Errorf("API port: %w; give another address with --api-listen", err)
	}
	defer api.Close() //nolint:errcheck // closed by the server as well
	port, err := operator.Listen(a.opts.OperatorListen, a.ready, &metrics{app: a})
	if err != nil {
		return err
	}
	// From the beginning: databases may let one wait, and the port says so.
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return port.Run(ctx) })
	g.Go(func() error { return a.control(ctx, api, port.Addr()) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// control opens the databases and does a controller's work.
func (a *App) control(ctx context.Context, api net.Listener, operatorAddr string) error {
	closeAll, err := a.open(ctx)
	defer closeAll()
	if err != nil {
		return err
	}
	d, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	a.pool = shards.New(a.store, shards.Config{
		Prefix: a.deployment.Root(), ID: a.opts.ID, Ring: d.RingSize, Log: a.log,
	})
	a.running.Store(true)
	a.log.Info("controller runs", zap.String("deployment", a.cfg.Deployment), zap.String("version", d.CurrentVersion),
		zap.String("api", api.Addr().String()), zap.String("operator", operatorAddr))

	// Ownership outlives the engine, so that its last checkpoints are still stored under
	// its locks when shards are handed over.
	owning, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	g, ctx := errgroup.WithContext(ctx)
	service := deployment.NewService(a.store, a.deployment, deployment.ServiceConfig{
		Upgrades: a, Verifier: a, Updates: updates{a}, Rehearser: a, Planner: a, Loss: a, Log: a.log,
		Policy: upgradestate.Policy{Hold: a.cfg.Switch.Hold},
	})
	g.Go(func() error { return service.Run(ctx) })
	g.Go(func() error {
		return operator.Serve(ctx, &http.Server{Handler: a.api(service), ReadHeaderTimeout: 10 * time.Second}, api)
	})
	g.Go(func() error { return a.pool.Run(owning) })
	g.Go(func() error {
		defer release()
		return a.sync(ctx)
	})
	g.Go(func() error { return a.index(ctx) })
	g.Go(func() error { return a.lead(ctx) })
	return g.Wait()
}

// api is the Deployment API.
func (a *App) api(service *deployment.Service) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(deployment.NewHandler(service))
	return mux
}

// ready says what the process waits for.
func (a *App) ready() error {
	if !a.running.Load() {
		return errors.New("waiting for the databases")
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
		g, ctx := errgroup.WithContext(ctx)
		prover := newProver(a)
		if !a.opts.reads {
			g.Go(func() error { return prover.run(ctx) })
		}
		g.Go(func() error {
			return switchover.New(deployment.ForDriver{Store: a.deployment}, fencers, switchover.Config{
				Deadline: a.cfg.Switch.Deadline, Checks: checks{a, prover}, Position: a.position,
				Forecaster: prover, Publish: prover.publish, News: prover.news,
			}, a.log).Run(ctx)
		})
		g.Go(func() error { return a.purge(ctx) })
		g.Go(func() error { return a.retire(ctx) })
		g.Go(func() error { return a.expire(ctx) })
		g.Go(func() error { return a.withdraw(ctx) })
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

// TransformHash tells the API how this controller transforms from one version to another.
func (a *App) TransformHash(from, to string) (string, error) {
	dir, err := a.registry.Direction(from, to)
	if err != nil {
		return "", err
	}
	return dir.Hash(), nil
}
