package controller

import (
	"context"
	"errors"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// check refuses servers that a controller cannot use, and databases other than the recorded one.
func (a *App) check(ctx context.Context, version string, db record.Namespace) error {
	if err := db.Check(ctx); err != nil {
		return err
	}
	if err := a.beats.wasRestored(ctx, version, db); err != nil {
		return err
	}
	return identity.Belongs(ctx, a.deployment, deployment.ErrNotFound, a.deployment.Name(), version, db)
}

// connect prepares connections to the configured databases. Each opens when first used.
func (a *App) connect(ctx context.Context) (closeAll func()) {
	opening := Opening{Check: a.check, Quiet: a.opts.quiet, Log: a.log}
	if a.opts.alone {
		opening.Check = nil // it writes to scratch collections
	}
	all, disconnect := a.backend.Connect(a.cfg.Databases, opening)
	a.databases = all
	for _, db := range a.cfg.Databases {
		ns := all[db.Version]
		a.namespaces[db.Version], a.scratches[db.Version], a.quiet[db.Version] = ns, ns, ns.Quietly()
		if a.opts.Wrap != nil {
			a.namespaces[db.Version] = a.opts.Wrap(db.Version, ns)
		}
		// Outermost, so that every stream is checked against the record.
		a.namespaces[db.Version] = a.marks.guard(db.Version, a.namespaces[db.Version])
	}
	disconnectImports := a.imports.connectImports()
	return func() {
		disconnectImports(ctx)
		disconnect(ctx)
	}
}

// prepare makes one attempt to create the Deployment and the collections of both sides. It refuses
// everything that this binary cannot work with before it creates anything.
//
// A deployment with namespaces needs only the database of its current version. It serves while
// other databases are unavailable or lost; see sync. A new deployment needs every database that is
// not disabled, because they determine the initial version.
func (a *App) prepare(ctx context.Context) (upgradestate.Deployment, error) {
	d, err := a.deployment.Get(ctx)
	if errors.Is(err, deployment.ErrNotFound) {
		var version string
		if version, err = a.first.InitialVersion(ctx); err == nil {
			d = upgradestate.New(a.cfg.Deployment, version, a.cfg.RingSize)
		}
	}
	if err != nil {
		return d, err
	}
	if err := a.cfg.fits(d); err != nil {
		return d, err
	}
	if d.Revision > 0 {
		if d, err = a.first.firstVersion(ctx, d); err != nil {
			return d, err
		}
	}
	if err := a.first.openFor(ctx, d); err != nil {
		return d, err
	}
	if err := a.marks.distinct(ctx); err != nil {
		return d, err
	}
	// The other side is optional from here on, unless the deployment is new.
	to, ok := a.cfg.wants(d)
	if ok && lived(d) {
		switch err := a.openSoon(ctx, to); {
		case a.backend.Unavailable(err), identity.IsLost(err):
			// The current version goes on without the other one, because applications still ask for
			// its location. sync announces upgrades once the database is available.
			a.engines.Fail(err)
			a.incarnation, err = a.deployment.Incarnation(ctx)
			return d, err
		case err != nil:
			return d, err
		}
	}
	if ok {
		dir, err := a.registry.Direction(d.CurrentVersion, to)
		if err != nil {
			return d, err
		}
		// Before Create: nothing may be recorded for collections that cannot be served.
		if err := a.first.inspect(ctx, d, dir); err != nil {
			return d, err
		}
	}
	if !lived(d) {
		if err := a.first.beginsWell(ctx, d); err != nil {
			return d, err
		}
	}
	if d, err = a.deployment.Create(ctx, d.CurrentVersion, a.cfg.RingSize); err != nil {
		return d, err
	}
	if a.incarnation, err = a.deployment.Incarnation(ctx); err != nil {
		return d, err
	}
	if err := a.cfg.fits(d); err != nil { // another controller may have created the record first
		return d, err
	}
	if len(a.cfg.reachable(d)) == 0 {
		return a.provisioning.provision(ctx, d, d.CurrentVersion, a.registry.Kinds(upgradestate.APIVersion(d.CurrentVersion)))
	}
	return a.provisioning.Announce(ctx, d)
}

// soon is the longest wait for a database that the controller can start without.
const soon = 5 * time.Second

// lived reports whether a deployment has namespaces. Only then has it been in use.
func lived(d upgradestate.Deployment) bool { return len(d.Namespaces) > 0 }
