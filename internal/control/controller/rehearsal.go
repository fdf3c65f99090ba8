package controller

import (
	"context"

	"dbcontroller.dev/internal/control/rehearsal"
	"dbcontroller.dev/record"
)

// rehearser returns the Rehearser of the API. Without scratch databases or Options.Aside it has no
// Backend, and refuses to rehearse.
func (a *App) rehearser() *rehearsal.Rehearser {
	r := &rehearsal.Rehearser{Deployment: a.deployment, Registry: a.registry, Target: a.cfg.target, Log: a.log}
	if backend, ok := a.backend.(Scratcher); ok && a.opts.Aside != nil {
		r.Backend = rehearsals{a, backend}
	}
	return r
}

// scratchOf returns the scratch database that replaces a configured one in a rehearsal.
func scratchOf(db Database) Database {
	db.Name, db.Disabled = rehearsal.ScratchName(db.Name), false
	return db
}

// rehearsals creates the parts of a rehearsal: scratch databases next to the real ones, and
// controllers with this one's configuration.
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
	// The stage has no operator who would begin an upgrade for the copy.
	cfg.Copy.Auto = true
	cfg.Hooks = nil // events of a rehearsal must not reach real hooks
	opts := Options{ID: r.app.opts.ID + "-rehearsal", Carry: r.app.opts.Carry, quiet: true}
	if reads {
		cfg.Databases[0], _ = r.app.cfg.Database(from)
		opts.reads = true
		opts.Wrap = func(version string, ns record.Namespace) record.Namespace {
			if version == from {
				return rehearsal.ReadOnly(ns) // the real source: refuse every write
			}
			return ns
		}
	}
	return stage{New(cfg, r.app.registry, r.app.opts.Aside(), r.app.backend, opts, r.app.base.Named("rehearsal"))}
}

// stage is the controller of a rehearsal. It has no listeners.
type stage struct{ *App }

func (s stage) Run(ctx context.Context) error { return s.App.Run(ctx, nil) }

func (s stage) Deployment() rehearsal.StageDeployment { return s.deployment }

func (s stage) Database(version string) rehearsal.Database { return s.scratches[version] }
