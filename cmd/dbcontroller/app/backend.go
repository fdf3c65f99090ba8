package app

import (
	"context"

	"dbcontroller/cmd/internal/databases"
	"dbcontroller/config"
	"dbcontroller/controller"
	"dbcontroller/record/mongostore"
)

// appName is this process in the logs of database servers.
const appName = "dbcontroller"

// backend is MongoDB, for a controller.
type backend struct{}

var _ controller.Backend = backend{}

// Connect is controller.Backend's.
func (backend) Connect(cfg config.Config, o controller.Opening) (map[string]controller.Database, func(context.Context)) {
	check := func(ctx context.Context, db config.DB, ns *mongostore.Namespace) error {
		return o.Check(ctx, db.Version, ns)
	}
	set := databases.New(cfg, databases.Config{App: appName, Checks: []databases.Check{check}, Log: o.Log, Quiet: o.Quiet})
	out := map[string]controller.Database{}
	for _, db := range cfg.DBs {
		out[db.Version] = database{set.Database(db.Version)}
	}
	return out, set.Close
}

// Unavailable is controller.Backend's.
func (backend) Unavailable(err error) bool { return databases.Unavailable(err) }

// database is one of them. What else it can do, as to tell of its server, is promoted.
type database struct{ *databases.Database }

func (d database) Open(ctx context.Context) error {
	_, err := d.Get(ctx)
	return err
}

func (d database) Quietly() controller.Space { return database{d.Database.Quietly()} }
