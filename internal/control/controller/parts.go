package controller

import (
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/cleanup"
	"dbcontroller.dev/internal/control/controller/comparison"
	"dbcontroller.dev/internal/control/controller/engines"
	"dbcontroller.dev/internal/control/controller/following"
	"dbcontroller.dev/internal/control/controller/formernames"
	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
)

// New returns a controller that has not started. The caller closes the coordination store.
func New(cfg Settings, registry *transform.Registry, store coord.Store, backend Backend, opts Options, log *zap.Logger) *App {
	a := &App{
		base: log,
		cfg:  cfg, opts: opts, registry: registry, store: store, backend: backend, log: log.With(zap.String("controller", opts.ID), zap.String("deployment", cfg.Deployment)),
		deployment:  deployment.New(store, cfg.Deployment, deployment.Config{Log: log, By: "controller " + opts.ID}),
		connections: &connections{namespaces: map[string]record.Namespace{}, scratches: map[string]Space{}, quiet: map[string]Space{}},
	}
	a.keys = keys.New(keys.Parts{
		Deployments: a.deployment, Databases: a.keyed, Wrap: opts.Wrap, Backend: backend, ID: opts.ID, Log: a.log,
		Self: func() string {
			if a.opts.alone {
				return cfg.File
			}
			return "controller " + opts.ID
		},
	})
	a.hooks = hooks.New(cfg.Hooks, a.deployment, a.log)
	if a.opts.Rollouts == nil {
		a.opts.Rollouts = a.deployment.Rollouts()
	}
	a.marks = &marks{connections: a.connections, cfg: cfg, opts: &a.opts, deployment: a.deployment, log: a.log}
	a.collections = collections.New(collections.Parts{
		Deployments: a.deployment, Registry: registry, Carry: opts.Carry, Log: a.log,
		Database: func(version string) collections.Database { return a.namespaces[version] },
		Target:   cfg.target, Idle: cfg.idle, Belongs: a.marks.belongs, Views: a.views,
	})
	a.beats = &beats{
		connections: a.connections, cfg: cfg, opts: &a.opts, registry: registry, deployment: a.deployment, collections: a.collections,
		pulses: pulses{dealing: make(chan struct{}, 1)}, log: a.log,
	}
	a.fences = &fences{connections: a.connections, opts: &a.opts, deployment: a.deployment, beats: a.beats, log: a.log}
	a.successors = &successors{connections: a.connections, deployment: a.deployment, log: a.log}
	a.adoption = &adoption{connections: a.connections, cfg: cfg, opts: &a.opts, backend: backend, deployment: a.deployment, beats: a.beats, log: a.log}
	a.wayBack = &wayBack{connections: a.connections, cfg: cfg, backend: backend, deployment: a.deployment, marks: a.marks, log: a.log}
	a.imports = &imports{cfg: cfg, deployment: a.deployment, imported: map[string]map[string]Connection{}, log: a.log}
	a.following = following.New(following.Parts{
		Deployments: a.deployment, Tasks: registry.Tasks(), Import: cfg.followed, May: a.imports.mayFollow, Log: a.log,
	})
	a.first = &firstStart{
		connections: a.connections, cfg: cfg, backend: backend, registry: registry, deployment: a.deployment, collections: a.collections, log: a.log,
	}
	a.provisioning = &provisioning{
		connections: a.connections, cfg: cfg, backend: backend, registry: registry, deployment: a.deployment, collections: a.collections,
		marks: a.marks, beats: a.beats, keys: a.keys, log: a.log,
	}
	a.pool = shards.New(store, shards.Config{Prefix: a.deployment.Root(), ID: opts.ID, Ring: cfg.RingSize, Log: a.log})
	followed := a.successors.replaced
	if opts.reads {
		followed = nil // the source's own controllers follow replacements
	}
	a.engines = engines.New(engines.Parts{
		Deployments: a.deployment, Registry: registry, Namespaces: a.namespaces, Pool: a.pool, Collections: a.collections,
		Provisioning: a.provisioning, Rotation: a.keys.Rotation(), Keys: a.imports,
		Target: cfg.target, Copies: cfg.copies, Lives: a.beats.lives, Replaced: followed, SourceLacks: a.successors.replacements.text, Log: a.log,
	}, engines.Settings{
		ID: opts.ID, Workers: cfg.Copy.Workers, Page: cfg.Copy.Page, MaxLag: cfg.Switch.MaxLag, ShowValues: cfg.ShowValues,
		Pacing: cfg.pacing(), Turns: opts.Turns, Unthrottled: cfg.Copy.Unthrottled, Tracer: opts.Tracer,
	})
	a.comparison = comparison.New(comparison.Parts{
		Deployments: a.deployment, Registry: registry, Namespaces: a.namespaces, Collections: a.collections,
		Target: cfg.target, Wants: cfg.wants, Copies: cfg.copies,
	})
	return a
}

// retirement returns the leader's work on retired versions.
func (a *App) retirement() cleanup.Retirement {
	return cleanup.Retirement{
		Deployments: a.deployment, Namespaces: a.namespaces, NoteBreaches: a.fences.noteBreaches, Log: a.log,
		Scratch: func(version string) cleanup.Space {
			if db := a.scratches[version]; db != nil {
				return db
			}
			return nil
		},
	}
}

// tombstones returns the leader's work on the tombstones of finished directions.
func (a *App) tombstones() cleanup.Tombstones {
	return cleanup.Tombstones{Deployments: a.deployment, Namespaces: a.namespaces, Belongs: a.marks.belongs, Log: a.log}
}

// formerNames returns the leader's watch of the names that the latest switch left.
func (a *App) formerNames() formernames.Watch {
	return formernames.Watch{
		Deployments: a.deployment, Lease: a.pool.Lease, Log: a.log,
		Databases: func(version string) any { return a.databases[version] },
	}
}
