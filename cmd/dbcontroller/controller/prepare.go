package controller

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"dbcontroller/config"
	"dbcontroller/deployment"
	"dbcontroller/record"
	"dbcontroller/record/mongostore"
	"dbcontroller/syncer"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
)

func mongoConfig(db config.DB, log *zap.Logger) mongostore.Config {
	return mongostore.Config{
		URI: db.Endpoint.Reveal(), Database: db.Database, PoolSize: db.PoolSize, AppName: "dbcontroller", Log: log,
	}
}

// open connects to every configured database and checks that it can be served.
func (a *App) open(ctx context.Context) (closeAll func(), err error) {
	var opened []*mongostore.Namespace
	closeAll = func() {
		for _, ns := range opened {
			if err := ns.Close(context.WithoutCancel(ctx)); err != nil {
				a.log.Debug("close database", zap.Error(err))
			}
		}
	}
	for _, db := range a.cfg.DBs {
		ns, err := mongostore.Open(ctx, mongoConfig(db, a.log))
		if err != nil {
			return closeAll, fmt.Errorf("database of %s: %w: start the server, or correct mongo.endpoint in %s", db.Version, err, filepath.Base(a.cfg.Path))
		}
		opened = append(opened, ns)
		if err := ns.Check(ctx); err != nil {
			return closeAll, fmt.Errorf("database of %s: %w", db.Version, err)
		}
		a.namespaces[db.Version], a.scratches[db.Version] = ns, ns
		if a.opts.Wrap != nil {
			a.namespaces[db.Version] = a.opts.Wrap(db.Version, ns)
		}
	}
	return closeAll, nil
}

// prepare creates the Deployment at the first configured version unless it is there, and
// makes the collections of both sides. What this binary cannot work with is refused
// before anything is created.
func (a *App) prepare(ctx context.Context) (upgradestate.Deployment, error) {
	versions := a.cfg.Versions()
	d, err := a.deployment.Get(ctx)
	if errors.Is(err, deployment.ErrNotFound) {
		d, err = upgradestate.New(a.cfg.Deployment, versions[0], a.cfg.RingSize), nil
	}
	if err != nil {
		return d, err
	}
	if err := a.fits(d); err != nil {
		return d, err
	}
	if to, ok := a.wants(d); ok {
		dir, err := a.registry.Direction(d.CurrentVersion, to)
		if err != nil {
			return d, err
		}
		if err := a.inspect(ctx, d, dir); err != nil {
			return d, err
		}
	}
	if d, err = a.deployment.Create(ctx, versions[0], a.cfg.RingSize); err != nil {
		return d, err
	}
	if err := a.fits(d); err != nil { // another controller may have been faster
		return d, err
	}
	if len(a.reachable(d)) == 0 {
		return a.provision(ctx, d, d.CurrentVersion, a.registry.Kinds(upgradestate.APIVersion(d.CurrentVersion)))
	}
	return a.offer(ctx, d)
}

// offer announces every upgrade that is possible now, with the collections of both sides,
// and which one is copied ahead. It is done once in each direction: what another process
// withdraws, because it is configured otherwise, stays withdrawn. What prevents the upgrade
// that this process is going to sync is an error; another one is left out.
func (a *App) offer(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
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
			return d, err
		default:
			a.log.Warn("this upgrade is not possible", zap.String("version", to), zap.Error(err))
		}
	}
	if d.Upgrade == nil {
		a.offered = d.Epoch
	}
	return d, nil
}

// mustOffer reports whether the upgrades of the present direction are still to be offered.
func (a *App) mustOffer(d upgradestate.Deployment) bool {
	return d.Name != "" && d.Upgrade == nil && a.offered < d.Epoch
}

// ensure makes the collections of both sides of a direction that are not there yet, and
// announces that the upgrade is possible. It changes nothing the second time.
func (a *App) ensure(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, error) {
	d, dir, err := a.furnish(ctx, d, to)
	if err != nil {
		return d, err
	}
	available := upgradestate.Available{TargetVersion: to, TransformHash: dir.Hash(), Ahead: to == a.ahead(d)}
	if slices.Contains(d.Available, available) {
		return d, nil
	}
	return a.deployment.Apply(ctx, upgradestate.AnnounceAvailable{Available: available})
}

// furnish makes the collections of both sides of a direction that are not there yet.
func (a *App) furnish(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, transform.Direction, error) {
	dir, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return d, nil, err
	}
	if d, err = a.provision(ctx, d, d.CurrentVersion, dir.SourceKinds()); err != nil {
		return d, nil, err
	}
	targetKinds, err := a.carryShapes(ctx, d, dir)
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
		_, err = a.carryShapes(ctx, d, dir)
	}
	if err != nil {
		return fmt.Errorf("kinds in %s: %w", filepath.Base(a.cfg.Path), err)
	}
	return nil
}

func (a *App) provision(ctx context.Context, d upgradestate.Deployment, version string, kinds []record.KindSpec) (upgradestate.Deployment, error) {
	db, _ := a.cfg.DB(version)
	ns, err := syncer.Provision(ctx, a.namespaces[version], d, version, "mongo:"+db.Database, kinds, func(kind string) record.FenceClass {
		for _, k := range a.cfg.Kinds {
			if kind == k.From || kind == k.To {
				return record.FenceClass(k.Fence)
			}
		}
		return ""
	})
	if err != nil {
		return d, err
	}
	if len(ns.Kinds) == 0 {
		return d, nil
	}
	return a.deployment.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
}
