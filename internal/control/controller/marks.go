package controller

import (
	"context"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// marks checks, by their marks, that the databases are those in the record, and writes the marks.
type marks struct {
	*connections
	cfg        Settings
	opts       *Options
	deployment *deployment.Store
	log        *zap.Logger
}

// guard checks a version's database against the record before each stream of its changes.
func (m *marks) guard(version string, ns record.Namespace) record.Namespace {
	return identity.Guard(ns, func(ctx context.Context) error {
		if err := m.belongs(ctx, version); err != nil {
			return err
		}
		return m.stillThere(ctx, version)
	})
}

// stillThere returns an error if the application's names of the current version now belong to other
// collections. Their changes would be missing from the stream.
func (m *marks) stillThere(ctx context.Context, version string) error {
	d, err := m.deployment.Get(ctx)
	if err != nil || version != d.CurrentVersion {
		return err
	}
	found, err := identity.Replacements(ctx, d, m.scratches[version])
	if err != nil || len(found) == 0 {
		return err
	}
	// One is enough: the engine stops, and the next check finds the others.
	return &record.ReplacedError{Kind: found[0].Kind, What: found[0].String()}
}

// belongs returns an error if the database of a version is not the one in the record, or is an
// older state of it.
func (m *marks) belongs(ctx context.Context, versions ...string) error {
	return identity.Check(ctx, m.deployment, m.markers(versions...))
}

// markers returns the databases of versions that are configured here. It leaves out the others.
func (m *marks) markers(versions ...string) map[string]record.Marker {
	out := map[string]record.Marker{}
	for _, v := range versions {
		if ns := m.namespaces[v]; ns != nil {
			out[v] = ns
		}
	}
	return out
}

// distinct refuses two configuration entries that reach the same database. It checks open databases
// only.
func (m *marks) distinct(ctx context.Context) error {
	return identity.Distinct(ctx, m.markers(m.opened()...), func(version string) string {
		db, _ := m.cfg.Database(version)
		return db.Name
	})
}

// adopt records the identity of a version's database if an older binary did not record it.
func (m *marks) adopt(ctx context.Context, d upgradestate.Deployment, version string) (upgradestate.Deployment, error) {
	ns, known := d.Namespace(version)
	if !known || ns.Identity.Database != "" || m.opts.reads && version == d.CurrentVersion {
		return d, nil
	}
	id, err := identity.Adopt(ctx, d, version, m.namespaces[version])
	if err != nil {
		return d, err
	}
	db, _ := m.cfg.Database(version)
	return m.deployment.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: version, Location: ns.Location, Hosts: db.Hosts, Identity: id,
	}})
}

// enter checks the owner of a version's database before collections are created there.
func (m *marks) enter(ctx context.Context, d upgradestate.Deployment, version string, kinds []record.KindSpec) (upgradestate.Identity, error) {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return identity.Enter(ctx, d, version, m.namespaces[version], names)
}

// keeper returns the Keeper that writes the marks of all configured databases.
func (m *marks) keeper() identity.Keeper {
	return identity.Keeper{Deployments: m.deployment, Databases: m.markers(m.cfg.Versions()...), Ahead: new(identity.Ahead)}
}

// keepMarks keeps the marks of the open databases in line with the record.
func (m *marks) keepMarks(ctx context.Context) error {
	return recordloop.Follow(ctx, m.deployment, m.log, func(d upgradestate.Deployment) (time.Duration, error) {
		return 0, identity.Keeper{Deployments: m.deployment, Databases: m.markers(m.opened()...)}.Keep(ctx, d)
	})
}

// opened lists the versions whose databases are open.
func (m *marks) opened() []string {
	var open []string
	for _, db := range m.cfg.Databases {
		if m.databases[db.Version].Opened() {
			open = append(open, db.Version)
		}
	}
	return open
}
