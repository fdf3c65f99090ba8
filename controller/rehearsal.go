package controller

import (
	"context"

	"dbcontroller.dev/record"
	"dbcontroller.dev/rehearsal"
)

// rehearser rehearses upgrades, for the API.
func (a *App) rehearser() *rehearsal.Rehearser {
	r := &rehearsal.Rehearser{Deployment: a.deployment, Registry: a.registry, Target: a.target, Log: a.log}
	if backend, ok := a.backend.(Scratcher); ok && a.opts.Aside != nil {
		r.Backend = rehearsals{a, backend}
	}
	return r
}

// scratchOf is the scratch database that stands for one of the settings.
func scratchOf(db Database) Database {
	db.Name, db.Disabled = rehearsal.ScratchName(db.Name), false
	return db
}

// rehearsals makes what rehearsals take place in: scratch databases next to the real ones,
// and controllers like this one.
type rehearsals struct {
	app     *App
	backend Scratcher
}

var _ rehearsal.Backend = rehearsals{}

func (r rehearsals) Real(version string) rehearsal.Database { return r.app.namespaces[version] }

func (r rehearsals) scratch(version string) Database {
	db, _ := r.app.cfg.Database(version)
	return scratchOf(db)
}

func (r rehearsals) Claim(ctx context.Context, version string) error {
	return r.backend.ClaimScratch(ctx, r.scratch(version))
}

func (r rehearsals) Drop(ctx context.Context, version string) error {
	return r.backend.DropScratch(ctx, r.scratch(version))
}

func (r rehearsals) Scratch(ctx context.Context, version string) (rehearsal.ScratchDatabase, func(context.Context), error) {
	connections, disconnect := r.app.backend.Connect([]Database{r.scratch(version)}, Opening{Quiet: true, Log: r.app.log})
	db := connections[version]
	if err := db.Open(ctx); err != nil {
		disconnect(context.WithoutCancel(ctx))
		return nil, nil, err
	}
	return db, disconnect, nil
}

func (r rehearsals) Stage(from, to string, reads bool) rehearsal.Stage {
	cfg := r.app.cfg
	cfg.Databases = []Database{r.scratch(from), r.scratch(to)}
	cfg.Copy.Auto = true
	cfg.Hooks = nil // nothing of it happens
	opts := Options{ID: r.app.opts.ID + "-rehearsal", Carry: r.app.opts.Carry, quiet: true}
	if reads {
		cfg.Databases[0], _ = r.app.cfg.Database(from)
		opts.reads = true
		opts.Wrap = func(version string, ns record.Namespace) record.Namespace {
			if version == from {
				return rehearsal.ReadOnly(ns) // the backend itself
			}
			return ns
		}
	}
	return stage{New(cfg, r.app.registry, r.app.opts.Aside(), r.app.backend, opts, r.app.log.Named("rehearsal"))}
}

// stage is a controller of a rehearsal, which nobody can call.
type stage struct{ *App }

func (s stage) Run(ctx context.Context) error { return s.App.Run(ctx, nil) }

func (s stage) Deployment() rehearsal.StageDeployment { return s.deployment }

func (s stage) Database(version string) rehearsal.Database { return s.scratches[version] }
