package controller

import (
	"context"
	"time"

	"dbcontroller.dev/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// guard has a version's database compared with the record whenever its changes are followed.
func (a *App) guard(version string, ns record.Namespace) record.Namespace {
	return identity.Guard(ns, func(ctx context.Context) error {
		if err := a.belongs(ctx, version); err != nil {
			return err
		}
		return a.stillThere(ctx, version)
	})
}

// stillThere refuses the changes of a version whose applications reach other collections by now.
func (a *App) stillThere(ctx context.Context, version string) error {
	d, err := a.deployment.Get(ctx)
	if err != nil || version != d.CurrentVersion {
		return err
	}
	found, err := identity.Replacements(ctx, d, a.scratches[version])
	if err != nil || len(found) == 0 {
		return err
	}
	return &record.ReplacedError{Kind: found[0].Kind, What: found[0].String()}
}

// belongs refuses versions whose database is not the one that the record means, or is of
// another time.
func (a *App) belongs(ctx context.Context, versions ...string) error {
	return identity.Check(ctx, a.deployment, a.markers(versions...))
}

// markers are the databases of versions that are configured here.
func (a *App) markers(versions ...string) map[string]record.Marker {
	out := map[string]record.Marker{}
	for _, v := range versions {
		if ns := a.namespaces[v]; ns != nil {
			out[v] = ns
		}
	}
	return out
}

// distinct refuses one database in two entries of the configuration, of those that are open.
func (a *App) distinct(ctx context.Context) error {
	return identity.Distinct(ctx, a.markers(a.opened()...), func(version string) string {
		db, _ := a.cfg.Database(version)
		return db.Name
	})
}

// adopt notes the identity of a version's database where the record of an older binary lacks
// it.
func (a *App) adopt(ctx context.Context, d upgradestate.Deployment, version string) (upgradestate.Deployment, error) {
	ns, known := d.Namespace(version)
	if !known || ns.Identity.Database != "" || a.opts.reads && version == d.CurrentVersion {
		return d, nil
	}
	id, err := identity.Adopt(ctx, d, version, a.namespaces[version])
	if err != nil {
		return d, err
	}
	db, _ := a.cfg.Database(version)
	return a.deployment.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: version, Location: ns.Location, Hosts: db.Hosts, Identity: id,
	}})
}

// enter checks whose a version's database is before collections are made there.
func (a *App) enter(ctx context.Context, d upgradestate.Deployment, version string, kinds []record.KindSpec) (upgradestate.Identity, error) {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return identity.Enter(ctx, d, version, a.namespaces[version], names)
}

// keeper writes the marks of the databases that are configured here.
func (a *App) keeper() identity.Keeper {
	return identity.Keeper{Deployments: a.deployment, Databases: a.markers(a.cfg.Versions()...)}
}

// keepMarks brings the marks in line with the record, in the databases that somebody uses.
func (a *App) keepMarks(ctx context.Context) error {
	return a.follow(ctx, func(d upgradestate.Deployment) (time.Duration, error) {
		return 0, identity.Keeper{Deployments: a.deployment, Databases: a.markers(a.opened()...)}.Keep(ctx, d)
	})
}

// opened are the versions whose databases are open.
func (a *App) opened() []string {
	var open []string
	for _, db := range a.cfg.Databases {
		if a.databases[db.Version].Opened() {
			open = append(open, db.Version)
		}
	}
	return open
}

// unowned reports that a database was cleared of everything that said whose it is, as the
// last part of a retirement does.
func (a *App) unowned(ctx context.Context, ns upgradestate.Namespace) (bool, error) {
	if ns.Identity.Database == "" {
		return false, nil // the record of an older binary
	}
	id, err := a.namespaces[ns.Version].Identity(ctx)
	if err != nil || id.Database == "" {
		return err == nil, err
	}
	if (upgradestate.Identity{Cluster: id.Cluster, Database: id.Database}).Differs(ns.Identity) {
		return false, &identity.MismatchError{Version: ns.Version, Found: "it is another one than the deployment means, and nothing is dropped there: correct its endpoint, or its database or prefix, in dbs of the configuration"}
	}
	return false, nil
}

// release takes a retired version's marks from its database.
func (a *App) release(ctx context.Context, d upgradestate.Deployment, version string) error {
	owner := record.Owner{Deployment: d.Name, Version: version}
	if err := a.namespaces[version].Release(ctx, identity.BeatOwner(owner)); err != nil {
		return err
	}
	return a.namespaces[version].Release(ctx, owner)
}
