package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
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
	disconnectImports := a.connectImports()
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
		if version, err = a.InitialVersion(ctx); err == nil {
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
		if d, err = a.firstVersion(ctx, d); err != nil {
			return d, err
		}
	}
	if err := a.openFor(ctx, d); err != nil {
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
		// Before Create: nothing may be recorded for collections that cannot be served.
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
	if err := a.cfg.fits(d); err != nil { // another controller may have created the record first
		return d, err
	}
	if len(a.cfg.reachable(d)) == 0 {
		return a.provision(ctx, d, d.CurrentVersion, a.registry.Kinds(upgradestate.APIVersion(d.CurrentVersion)))
	}
	return a.announce(ctx, d)
}

// soon is the longest wait for a database that the controller can start without.
const soon = 5 * time.Second

// lived reports whether a deployment has namespaces. Only then has it been in use.
func lived(d upgradestate.Deployment) bool { return len(d.Namespaces) > 0 }

// openFor opens the databases that prepare needs.
func (a *App) openFor(ctx context.Context, d upgradestate.Deployment) error {
	for _, db := range a.cfg.Databases {
		if db.Version != d.CurrentVersion && (lived(d) || db.Disabled) {
			continue
		}
		switch err := a.databases[db.Version].Open(ctx); {
		case identity.IsLost(err) && db.Version == d.CurrentVersion:
			return a.cfg.withWayBack(d, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// announce announces every possible upgrade with the collections of both sides, and which one is
// copied in advance. It does so once for each direction: an announcement that another process
// withdraws, because of its configuration, stays withdrawn. It returns an error if the upgrade that
// this process will sync is not possible. It skips other impossible upgrades, or postpones them if
// only their database is unavailable.
func (a *App) announce(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	targets := a.cfg.reachable(d)
	wanted, ok := a.cfg.wants(d)
	if ok { // first, because this one has work to do
		targets = append([]string{wanted}, slices.DeleteFunc(targets, func(v string) bool { return v == wanted })...)
	}
	if d.Upgrade != nil {
		targets = targets[:min(1, len(targets))] // a running upgrade refuses others
	}
	for _, to := range targets {
		next, err := a.ensure(ctx, d, to)
		switch {
		case err == nil:
			d = next
		case to == wanted || ctx.Err() != nil:
			// Another controller may have flipped meanwhile. Then another version is wanted.
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

// mustAnnounce reports whether the upgrades of the present direction are not announced yet.
func (a *App) mustAnnounce(d upgradestate.Deployment) bool {
	return d.Name != "" && d.Upgrade == nil && a.announced < d.Epoch
}

// ensure creates missing collections on both sides of a direction, and announces the upgrade. A
// second call changes nothing.
func (a *App) ensure(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, error) {
	d, dir, err := a.ensureCollections(ctx, d, to)
	if err != nil {
		return d, err
	}
	available := upgradestate.Available{TargetVersion: to, TransformHash: dir.Hash(), Precopied: to == a.cfg.precopied(d)}
	if slices.Contains(d.Available, available) {
		return d, nil
	}
	return a.deployment.Apply(ctx, upgradestate.AnnounceAvailable{Available: available})
}

// ensureCollections creates missing collections on both sides of a direction.
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

// inspect returns an error for collections that cannot be served. It changes nothing.
func (a *App) inspect(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) error {
	inspect := func(version string, kinds []record.KindSpec) error {
		if err := syncer.Inspect(ctx, a.namespaces[version], d, version, kinds); err != nil {
			return fmt.Errorf("%s: %w", a.placeOf(version), err)
		}
		return nil
	}
	err := inspect(dir.From(), dir.SourceKinds())
	if err == nil {
		err = inspect(dir.To(), dir.TargetKinds())
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
	d, err := a.marks.adopt(ctx, d, version)
	if err != nil {
		return d, err
	}
	known, _ := d.Namespace(version)
	// A kind that the record has is never provisioned again, even if its collection is gone.
	missing := slices.DeleteFunc(slices.Clone(kinds), func(k record.KindSpec) bool { _, there := known.Kind(k.Name); return there })
	if len(missing) == 0 {
		return d, a.marks.belongs(ctx, version)
	}
	id, err := a.marks.enter(ctx, d, version, missing)
	if err != nil {
		return d, err
	}
	// The last check before anything is created: controllers with another etcd may use the
	// database.
	if err := a.beats.claim(ctx, version, (*identity.Pulse).Look); err != nil {
		return d, err
	}
	ns, err := syncer.Provision(ctx, a.namespaces[version], d, version, db.Location, kinds, func(kind string) record.FenceClass { return a.cfg.Fences[kind] })
	if err != nil {
		return d, err
	}
	// Before the collections are announced, because clients then write to them.
	err = a.keys.Begin(ctx, version, missing, func(first *sealed.State) error {
		if len(known.Kinds) > 0 {
			first = nil
		}
		return identity.Take(ctx, d, version, a.namespaces[version], ns.Kinds, first)
	})
	if err != nil {
		return d, err
	}
	// Two etcds may have started at the same moment. The beat lets only the first one continue.
	if err := a.beats.claim(ctx, version, (*identity.Pulse).Beat); err != nil {
		return d, err
	}
	ns.Identity, ns.Hosts = id, db.Hosts
	return a.deployment.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
}
