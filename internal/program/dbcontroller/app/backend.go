package app

import (
	"context"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/control/rehearsal"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
)

// appName identifies this process in the logs of database servers.
const appName = "dbcontroller"

// backend gives a controller the databases of a configuration.
type backend struct {
	cfg     config.Config
	clients *databases.Clients // shared by the deployments of the process; nil: none shared
	log     *zap.Logger
}

var (
	_ controller.Backend   = backend{}
	_ controller.Scratcher = backend{}
)

func (b backend) Connect(dbs []controller.Database, o controller.Opening) (map[string]controller.Connection, func(context.Context)) {
	how := databases.Config{App: appName, Clients: b.clients, Log: o.Log, Quiet: o.Quiet}
	if o.Check != nil {
		how.Checks = []databases.Check{func(ctx context.Context, db config.DB, ns record.Namespace) error {
			return o.Check(ctx, db.Version, ns)
		}}
	}
	cfg := b.cfg
	// The caller may want scratch databases, which the configuration does not list.
	cfg.DBs = nil
	for _, db := range dbs {
		cfg.DBs = append(cfg.DBs, b.entry(db))
	}
	set := databases.New(cfg, how)
	out := map[string]controller.Connection{}
	for _, db := range dbs {
		out[db.Version] = connection{set.Database(db.Version)}
	}
	return out, set.Close
}

// entry returns the configuration of a database: the entry of its version, with the database's own
// name.
func (b backend) entry(db controller.Database) config.DB {
	entry, _ := b.cfg.DB(db.Version)
	if entry.Database != db.Name {
		entry.Kinds = nil // applications keep no keys in a scratch database
	}
	entry.Database, entry.Disabled = db.Name, db.Disabled
	return entry
}

func (backend) Unavailable(err error) bool { return databases.Unavailable(err) }

func (backend) Unprivileged(err error) bool { return databases.Unprivileged(err) }

// scratchable refuses to rehearse kinds that can exist in one place only.
func (b backend) scratchable(db controller.Database) error {
	if entry, _ := b.cfg.DB(db.Version); len(entry.Kinds) > 0 {
		return &record.UnsupportedError{What: "a rehearsal of kind " + entry.Kinds[0].Name, Reason: "its application has its keys in etcd at one place, and there is no second one: rehearse with a configuration of its own on an etcd that was restored from a snapshot (etcdctl snapshot save), or leave it at 'plan', which transforms a sample"}
	}
	return nil
}

func (b backend) CheckScratch(ctx context.Context, db controller.Database) error {
	if err := b.scratchable(db); err != nil {
		return err
	}
	return databases.CheckScratch(ctx, b.entry(db), b.how())
}

func (b backend) ClaimScratch(ctx context.Context, db controller.Database) error {
	if err := b.scratchable(db); err != nil {
		return err
	}
	return databases.ClaimScratch(ctx, b.entry(db), b.how())
}

func (b backend) DropScratch(ctx context.Context, db controller.Database) error {
	return databases.DropScratch(ctx, b.entry(db), b.how())
}

func (b backend) how() databases.Config { return databases.Config{App: appName, Log: b.log} }

// connection adapts one database to the interfaces of the controller.
type connection struct{ *databases.Database }

var (
	_ record.Monitor     = connection{}
	_ preflight.Surveyor = connection{}
	_ preflight.Sharder  = connection{}
	_ preflight.Holder   = connection{}
	_ rehearsal.Clients  = connection{}
)

func (c connection) Open(ctx context.Context) error {
	_, err := c.Get(ctx)
	return err
}

func (c connection) Quietly() controller.Space { return connection{c.Database.Quietly()} }
