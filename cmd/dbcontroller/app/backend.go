package app

import (
	"context"

	"go.uber.org/zap"

	"dbcontroller.dev/cmd/internal/databases"
	"dbcontroller.dev/config"
	"dbcontroller.dev/controller"
	"dbcontroller.dev/preflight"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
	"dbcontroller.dev/rehearsal"
)

// appName is this process in the logs of database servers.
const appName = "dbcontroller"

// backend is the MongoDB of a configuration, for a controller.
type backend struct {
	cfg config.Config
	log *zap.Logger
}

var (
	_ controller.Backend   = backend{}
	_ controller.Scratcher = backend{}
)

func (b backend) Connect(dbs []controller.Database, o controller.Opening) (map[string]controller.Connection, func(context.Context)) {
	how := databases.Config{App: appName, Log: o.Log, Quiet: o.Quiet}
	if o.Check != nil {
		how.Checks = []databases.Check{func(ctx context.Context, db config.DB, ns *mongostore.Namespace) error {
			return o.Check(ctx, db.Version, ns)
		}}
	}
	cfg := b.cfg
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

// entry is how a database is reached: as that of its version, by its own name.
func (b backend) entry(db controller.Database) config.DB {
	entry, _ := b.cfg.DB(db.Version)
	entry.Database, entry.Disabled = db.Name, db.Disabled
	return entry
}

func (backend) Unavailable(err error) bool { return databases.Unavailable(err) }

func (backend) Unprivileged(err error) bool { return mongostore.IsPrivilege(err) }

// scratch is how a scratch database is reached, with the login that files hold now.
func (b backend) scratch(db controller.Database) mongostore.Config {
	entry := b.entry(db)
	if now, err := entry.Renewed(); err == nil {
		entry = now
	}
	cfg := databases.MongoConfig(entry, appName, b.log)
	cfg.Quiet = true
	return cfg
}

func (b backend) CheckScratch(ctx context.Context, db controller.Database) error {
	return mongostore.CheckScratch(ctx, b.scratch(db))
}

func (b backend) ClaimScratch(ctx context.Context, db controller.Database) error {
	return mongostore.ClaimScratch(ctx, b.scratch(db))
}

func (b backend) DropScratch(ctx context.Context, db controller.Database) error {
	return mongostore.DropScratch(ctx, b.scratch(db))
}

// connection is one of the databases.
type connection struct{ *databases.Database }

var (
	_ record.Monitor     = connection{}
	_ preflight.Surveyor = connection{}
	_ preflight.Sharder  = connection{}
	_ rehearsal.Clients  = connection{}
)

func (c connection) Open(ctx context.Context) error {
	_, err := c.Get(ctx)
	return err
}

func (c connection) Quietly() controller.Space { return connection{c.Database.Quietly()} }
