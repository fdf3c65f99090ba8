package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/deployment"
	"dbcontroller.dev/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// check refuses a server that a controller cannot work with, and a database that is not the
// one that the deployment means.
func (a *App) check(ctx context.Context, version string, db record.Namespace) error {
	if err := db.Check(ctx); err != nil {
		return err
	}
	if err := a.wasRestored(ctx, version, db); err != nil {
		return err
	}
	return identity.Belongs(ctx, a.deployment, deployment.ErrNotFound, a.deployment.Name(), version, db)
}

// connect makes the databases of the configuration known. Each is opened when something
// needs it.
func (a *App) connect(ctx context.Context) (closeAll func()) {
	opening := Opening{Check: a.check, Quiet: a.opts.quiet, Log: a.log}
	if a.opts.alone {
		opening.Check = nil // it tries things in the database
	}
	all, disconnect := a.backend.Connect(a.cfg.Databases, opening)
	a.databases = all
	for _, db := range a.cfg.Databases {
		ns := all[db.Version]
		a.namespaces[db.Version], a.scratches[db.Version], a.quiet[db.Version] = ns, ns, ns.Quietly()
		if a.opts.Wrap != nil {
			a.namespaces[db.Version] = a.opts.Wrap(db.Version, ns)
		}
		a.namespaces[db.Version] = a.guard(db.Version, a.namespaces[db.Version])
	}
	disconnectImports := a.connectImports()
	return func() {
		disconnectImports(ctx)
		disconnect(ctx)
	}
}

// prepare makes one attempt at what has to be before a controller works: a Deployment, and
// the collections of both sides. What this binary cannot work with is refused before
// anything is created.
//
// A deployment that has lived needs the database of its current version alone: whatever
// else is away or lost is waited for while that is served, see sync. Before its life begins all
// databases that are not disabled have to be there, for they decide where it begins.
func (a *App) prepare(ctx context.Context) (upgradestate.Deployment, error) {
	d, err := a.deployment.Get(ctx)
	if errors.Is(err, deployment.ErrNotFound) {
		var version string
		if version, err = a.InitialVersion(ctx); err == nil {
			d = upgradestate.New(a.cfg.Deployment, version, a.cfg.RingSize)
		}
	}
	if err != nil {
		return d, err
	}
	if err := a.fits(d); err != nil {
		return d, err
	}
	if d.Revision > 0 {
		if d, err = a.firstVersion(ctx, d); err != nil {
			return d, err
		}
	}
	if err := a.openFor(ctx, d); err != nil {
		return d, err
	}
	if err := a.distinct(ctx); err != nil {
		return d, err
	}
	to, ok := a.wants(d)
	if ok && lived(d) {
		switch err := a.openSoon(ctx, to); {
		case a.backend.Unavailable(err), identity.IsLost(err):
			// The active version goes on without the passive one: applications still ask where
			// it is. sync announces upgrades as soon as the database is there.
			a.engines.fail(err)
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
		if err := a.inspect(ctx, d, dir); err != nil {
			return d, err
		}
	}
	if !lived(d) {
		if err := a.beginsWell(ctx, d); err != nil {
			return d, err
		}
	}
	if d, err = a.deployment.Create(ctx, d.CurrentVersion, a.cfg.RingSize); err != nil {
		return d, err
	}
	if a.incarnation, err = a.deployment.Incarnation(ctx); err != nil {
		return d, err
	}
	if err := a.fits(d); err != nil { // another controller may have been faster
		return d, err
	}
	if len(a.reachable(d)) == 0 {
		return a.provision(ctx, d, d.CurrentVersion, a.registry.Kinds(upgradestate.APIVersion(d.CurrentVersion)))
	}
	return a.announce(ctx, d)
}

// soon is how long a controller waits for a database that it can begin without.
const soon = 5 * time.Second

// openSoon opens a database unless that takes long, which is unavailable.
func (a *App) openSoon(ctx context.Context, version string) error {
	bounded, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	return a.databases[version].Open(bounded)
}

// lived reports whether a deployment has ever had a namespace.
func lived(d upgradestate.Deployment) bool { return len(d.Namespaces) > 0 }

// openFor opens the databases that prepare needs.
func (a *App) openFor(ctx context.Context, d upgradestate.Deployment) error {
	for _, db := range a.cfg.Databases {
		if db.Version != d.CurrentVersion && (lived(d) || db.Disabled) {
			continue
		}
		switch err := a.databases[db.Version].Open(ctx); {
		case identity.IsLost(err) && db.Version == d.CurrentVersion:
			return a.withWayBack(d, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// announce announces every upgrade that is possible now, with the collections of both sides,
// and which one is precopied. It is done once in each direction: what another process
// withdraws, because it is configured otherwise, stays withdrawn. What prevents the upgrade
// that this process is going to sync is an error; another one is left out, or announced later
// if nothing but its database is missing.
func (a *App) announce(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	targets := a.reachable(d)
	wanted, ok := a.wants(d)
	if ok { // first, for it has work to do
		targets = append([]string{wanted}, slices.DeleteFunc(targets, func(v string) bool { return v == wanted })...)
	}
	if d.Upgrade != nil {
		targets = targets[:min(1, len(targets))] // others would be refused
	}
	for _, to := range targets {
		next, err := a.ensure(ctx, d, to)
		switch {
		case err == nil:
			d = next
		case to == wanted || ctx.Err() != nil:
			// Another controller may have flipped meanwhile; then something else is wanted.
			if now, getErr := a.deployment.Get(ctx); getErr == nil && now.Epoch != d.Epoch {
				return a.announce(ctx, now)
			}
			return d, err
		default:
			if a.backend.Unavailable(err) {
				a.postpone(to)
			}
			a.log.Warn("this upgrade is not possible", zap.String("version", to), zap.Error(err))
		}
	}
	if d.Upgrade == nil {
		a.announced = d.Epoch
	}
	return d, nil
}

// mustAnnounce reports whether the upgrades of the present direction are still to be announced.
func (a *App) mustAnnounce(d upgradestate.Deployment) bool {
	return d.Name != "" && d.Upgrade == nil && a.announced < d.Epoch
}

// ensure makes the collections of both sides of a direction that are not there yet, and
// announces that the upgrade is possible. It changes nothing the second time.
func (a *App) ensure(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, error) {
	d, dir, err := a.ensureCollections(ctx, d, to)
	if err != nil {
		return d, err
	}
	available := upgradestate.Available{TargetVersion: to, TransformHash: dir.Hash(), Precopied: to == a.precopied(d)}
	if slices.Contains(d.Available, available) {
		return d, nil
	}
	return a.deployment.Apply(ctx, upgradestate.AnnounceAvailable{Available: available})
}

// ensureCollections makes the collections of both sides of a direction that are not there yet.
func (a *App) ensureCollections(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, transform.Direction, error) {
	dir, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return d, nil, err
	}
	if d, err = a.provision(ctx, d, d.CurrentVersion, dir.SourceKinds()); err != nil {
		return d, nil, err
	}
	targetKinds, err := a.collections.Carried(ctx, d, dir)
	if err != nil {
		return d, nil, err
	}
	d, err = a.provision(ctx, d, to, targetKinds)
	return d, dir, err
}

// fits refuses a Deployment that this binary or its configuration is not for.
func (a *App) fits(d upgradestate.Deployment) error {
	if d.RingSize != a.cfg.RingSize {
		return fmt.Errorf("sharding.ringSize is %d, but %s has a ring of %d, which is fixed: correct the configuration", a.cfg.RingSize, d.Name, d.RingSize)
	}
	if decision := upgradestate.Decide(a.cfg.Versions(), &d); !decision.Role.Controls() {
		return fmt.Errorf("%s: %s", d.Name, decision.Reason)
	}
	return nil
}

// inspect refuses collections that cannot be served, without changing anything.
func (a *App) inspect(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) error {
	err := syncer.Inspect(ctx, a.namespaces[dir.From()], d, dir.From(), dir.SourceKinds())
	if err == nil {
		err = syncer.Inspect(ctx, a.namespaces[dir.To()], d, dir.To(), dir.TargetKinds())
	}
	if err == nil {
		_, err = a.collections.Carried(ctx, d, dir)
	}
	if err != nil {
		return fmt.Errorf("kinds in %s: %w", a.cfg.File, err)
	}
	return nil
}

func (a *App) provision(ctx context.Context, d upgradestate.Deployment, version string, kinds []record.KindSpec) (upgradestate.Deployment, error) {
	db, _ := a.cfg.Database(version)
	d, err := a.adopt(ctx, d, version)
	if err != nil {
		return d, err
	}
	known, _ := d.Namespace(version)
	missing := slices.DeleteFunc(slices.Clone(kinds), func(k record.KindSpec) bool { _, there := known.Kind(k.Name); return there })
	if len(missing) == 0 {
		return d, a.belongs(ctx, version)
	}
	id, err := a.enter(ctx, d, version, missing)
	if err != nil {
		return d, err
	}
	// Before anything is made there.
	if err := a.claim(ctx, version, (*identity.Pulse).Look); err != nil {
		return d, err
	}
	ns, err := syncer.Provision(ctx, a.namespaces[version], d, version, db.Location, kinds, func(kind string) record.FenceClass { return a.cfg.Fences[kind] })
	if err != nil {
		return d, err
	}
	// Before anybody is told of them, and writes.
	err = a.beginKeys(ctx, version, missing, func(first *sealed.State) error {
		if len(known.Kinds) > 0 {
			first = nil
		}
		return identity.Take(ctx, d, version, a.namespaces[version], ns.Kinds, first)
	})
	if err != nil {
		return d, err
	}
	// Two etcds may have begun at the same moment. One of them is the first.
	if err := a.claim(ctx, version, (*identity.Pulse).Beat); err != nil {
		return d, err
	}
	ns.Identity, ns.Hosts = id, db.Hosts
	return a.deployment.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
}
