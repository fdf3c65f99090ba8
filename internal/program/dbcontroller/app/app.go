// Package app is the process of dbcontroller: a controller over the databases of a configuration,
// with its listeners. Tests run the same App. Package controller owns the controller's work,
// package cli owns commands and flags. Begin to read at App.Run.
//
// It is not for users and may change with any version.
package app

import (
	"cmp"
	"context"
	"path/filepath"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Options are settings of the command line, which override or extend the configuration. The zero
// value takes everything from the configuration.
type Options struct {
	controller.Options
	APIListen      string // address of the API; empty: as configured
	AppsListen     string // address of the applications' calls; empty: as configured
	OperatorListen string // address of the operator port; empty: as configured
	NoPage         bool   // do not serve the page for operators, whatever is configured
	Insecure       bool   // allow other machines to connect without TLS or identities
	// EmbeddedEtcd reports that etcd runs in a process of this machine.
	EmbeddedEtcd bool
}

// App is one controller process.
type App struct {
	cfg        config.Config
	opts       Options
	controller *controller.App
	store      coord.Store
	log        *zap.Logger
	wrong      error // error in the configuration, returned by Run
}

// New makes a process. The caller closes the coordination store. Run returns configuration errors
// that New finds.
func New(cfg config.Config, registry *transform.Registry, store coord.Store, opts Options, log *zap.Logger) *App {
	opts.APIListen = cmp.Or(opts.APIListen, cfg.API)
	opts.OperatorListen = cmp.Or(opts.OperatorListen, cfg.Operator)
	opts.AppsListen = cmp.Or(opts.AppsListen, cfg.Applications)
	// Rehearsals coordinate in memory, so that they leave no trace in etcd.
	opts.Aside = func() coord.Store { return memcoord.New() }
	set := settings(cfg, opts.EmbeddedEtcd, log)
	var wrong error
	set.Hooks, wrong = hooksOf(cfg)
	if wrong == nil {
		set.RolloutChecks, wrong = checksOf(cfg)
	}
	return &App{
		cfg: cfg, opts: opts, controller: controller.New(set, registry, store, backend{cfg, nil, log}, opts.Options, log),
		store: store, log: log.With(zap.String("controller", opts.ID)), wrong: wrong,
	}
}

// Run works until ctx ends and then returns nil. If the configuration, the servers or the data are
// wrong, it returns an error before it changes anything.
func (a *App) Run(ctx context.Context) error {
	if a.wrong != nil {
		return a.wrong
	}
	d, err := a.open()
	if err != nil {
		return err
	}
	defer d.close() // their servers may have closed them already
	return a.controller.Run(ctx, d)
}

// PlanAlone makes a plan without a running controller. It changes nothing; see
// controller.App.PlanAlone.
func PlanAlone(ctx context.Context, cfg config.Config, registry *transform.Registry, carry collections.Carries, embedded bool,
	d *upgradestate.Deployment, target string, progress func(api.Work), log *zap.Logger) (*pb.PlanReport, error) {
	c := controller.New(settings(cfg, embedded, log), registry, memcoord.New(), backend{cfg, nil, log}, controller.Options{ID: "plan", Carry: carry}, log)
	return c.PlanAlone(ctx, d, target, progress)
}

// settings converts a configuration for the controller. embedded reports that etcd runs in a
// process of this machine.
func settings(cfg config.Config, embedded bool, log *zap.Logger) controller.Settings {
	s := controller.Settings{
		File: filepath.Base(cfg.Path), Deployment: cfg.Deployment, RingSize: cfg.RingSize, InitialVersion: cfg.InitialVersion,
		Fences: map[string]record.FenceClass{},
		Copy: controller.Copy{
			Auto: cfg.Copy.Auto, MaxRate: cfg.Copy.MaxRate, Workers: cfg.Copy.Workers,
			Unthrottled: cfg.Copy.Unthrottled, MaxSourceLoad: cfg.Copy.MaxSourceLoad, Window: cfg.Copy.Window,
		},
		Switch: controller.Switch{
			Policy: upgradestate.Policy{
				Hold: cfg.Switch.Hold, DeadlineMillis: cfg.Switch.Deadline.Milliseconds(),
				MaxHoldMillis: cfg.Switch.MaxHold.Milliseconds(), Retries: cmp.Or(cfg.Switch.Retries, -1), // 0 is none
			},
			MaxLag: cfg.Switch.MaxLag,
		},
		Coordination: preflight.Coordination{Endpoints: cfg.Etcd.Endpoints, Embedded: embedded},
		ShardMetrics: cfg.ShardMetrics, ShowValues: cfg.ShowValues, ShowRecords: cfg.ShowRecords,
	}
	// Endpoints beyond this machine without TLS lead to a warning.
	if !cfg.Etcd.IsTLS() {
		s.Coordination.Plaintext = config.Beyond(cfg.Etcd.Endpoints)
	}
	s.Databases = databasesOf(cfg)
	for _, i := range cfg.Imports {
		in := controller.Import{Import: preflight.Import{Service: i.Service, Deployment: i.Deployment, Older: i.Older, Newer: i.Newer}}
		// An import with databases of its own reads them through its own backend.
		if len(i.DBs) > 0 {
			theirs := cfg
			theirs.DBs = i.DBs
			in.Backend, in.Databases = backend{theirs, nil, log}, databasesOf(theirs)
		}
		s.Imports = append(s.Imports, in)
	}
	for _, r := range cfg.Referrers {
		s.Referrers = append(s.Referrers, preflight.Referrer(r))
	}
	for _, k := range cfg.Kinds {
		for _, kind := range []string{k.From, k.To} {
			if _, known := s.Fences[kind]; !known { // the first entry of a kind decides
				s.Fences[kind] = record.FenceClass(k.Fence)
			}
		}
	}
	return s
}

// databasesOf converts the databases of a configuration, or of another deployment that it names.
func databasesOf(cfg config.Config) []controller.Database {
	out := make([]controller.Database, len(cfg.DBs))
	for i, db := range cfg.DBs {
		out[i] = controller.Database{
			Version: db.Version, APIVersion: db.APIVersion, Name: db.Database, Location: db.Place(),
			Hosts: db.Hosts(), Plaintext: db.Plaintext(), Disabled: db.Disabled,
		}
	}
	return out
}
