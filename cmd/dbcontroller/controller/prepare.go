package controller

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"dbcontroller/deployment"
	"dbcontroller/record"
	"dbcontroller/record/mongostore"
	"dbcontroller/syncer"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
)

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
		ns, err := mongostore.Open(ctx, mongostore.Config{
			URI: db.Endpoint.Reveal(), Database: db.Database, PoolSize: db.PoolSize,
			AppName: "dbcontroller", Log: a.log,
		})
		if err != nil {
			return closeAll, fmt.Errorf("database of %s: %w: start the server, or correct mongo.endpoint in %s", db.Version, err, filepath.Base(a.cfg.Path))
		}
		opened = append(opened, ns)
		if err := ns.Check(ctx); err != nil {
			return closeAll, fmt.Errorf("database of %s: %w", db.Version, err)
		}
		a.namespaces[db.Version] = ns
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
	to, ok := a.target(d)
	if ok {
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
	if !ok {
		return a.provision(ctx, d, d.CurrentVersion, nil)
	}
	return a.ensure(ctx, d, to)
}

// ensure makes the collections of both sides of a direction that are not there yet, and
// announces that the upgrade is possible. It changes nothing the second time.
func (a *App) ensure(ctx context.Context, d upgradestate.Deployment, to string) (upgradestate.Deployment, error) {
	dir, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return d, err
	}
	if d, err = a.provision(ctx, d, d.CurrentVersion, dir.SourceKinds()); err != nil {
		return d, err
	}
	targetKinds, err := a.carryShapes(ctx, d, dir)
	if err != nil {
		return d, err
	}
	if d, err = a.provision(ctx, d, to, targetKinds); err != nil {
		return d, err
	}
	available := upgradestate.Available{TargetVersion: to, TransformHash: dir.Hash()}
	if slices.Contains(d.Available, available) {
		return d, nil
	}
	return a.deployment.Apply(ctx, upgradestate.AnnounceAvailable{Available: available})
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

// Carry tells how a fixed-name kind of the new version gets its options and indexes:
// from those of a kind of the old one.
type Carry struct {
	From  string
	Shape func(record.Shape) (record.Shape, error)
}

// carryShapes gives the target's fixed-name kinds the options and indexes of their
// source, through the lens.
func (a *App) carryShapes(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) ([]record.KindSpec, error) {
	kinds := slices.Clone(dir.TargetKinds())
	made, _ := d.Namespace(dir.To())
	for i, k := range kinds {
		carry, ok := a.opts.Carry[k.Name]
		if _, there := made.Kind(k.Name); there || !ok {
			// One that is there has its shape, and during a switch the source cannot be
			// described under a name that it is just losing.
			continue
		}
		name := carry.From // until the record knows better
		if at := upgradestate.EnginePlaces(d, d.CurrentVersion)[carry.From]; len(at) > 0 {
			name = at[0].Name
		}
		info, err := a.namespaces[d.CurrentVersion].Describe(ctx, record.KindSpec{Name: carry.From, Fixed: true}, name)
		if err != nil {
			return nil, err
		}
		if kinds[i].Shape, err = carry.Shape(info.Shape); err != nil {
			return nil, fmt.Errorf("carry options and indexes of %s: %w", carry.From, err)
		}
	}
	return kinds, nil
}
