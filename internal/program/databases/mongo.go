package databases

import (
	"context"
	"fmt"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
)

// mongoEngine opens databases in MongoDB.
type mongoEngine struct{}

func mongoConfig(db config.DB, how Config) mongostore.Config {
	return mongostore.Config{
		URI: db.Endpoint.Reveal(), Database: db.Database, PoolSize: db.PoolSize, AppName: how.App, Log: how.Log, Quiet: how.Quiet, Seen: how.seen, Clients: how.Clients,
		Certificates: db.Certificates,
	}
}

func (mongoEngine) open(ctx context.Context, db config.DB, how Config, file string) (Space, error) {
	ns, err := mongostore.Open(ctx, mongoConfig(db, how))
	if err != nil {
		return nil, fmt.Errorf("%w: start the server, or correct mongo.endpoint in %s", err, file)
	}
	return mongoSpace{ns}, nil
}

func (mongoEngine) scratch(db config.DB, how Config) scratcher {
	return mongoScratch(mongoConfig(db, how))
}

func (mongoEngine) unavailable(err error) bool  { return mongostore.IsUnavailable(err) }
func (mongoEngine) unprivileged(err error) bool { return mongostore.IsPrivilege(err) }
func (mongoEngine) once(config.DB, int) int     { return limits.Fixtures }
func (mongoEngine) loginRefused(err error) bool { return mongostore.IsLoginRefused(err) }

func (mongoEngine) documents(db config.DB) (config.Secret, bool) { return db.Endpoint, true }
func (mongoEngine) product() string                              { return "mongodb" }
func (mongoEngine) shell(db config.DB) string                    { return "mongosh '" + db.Location() + "'" }

// mongoSpace is an open database in MongoDB.
type mongoSpace struct{ *mongostore.Namespace }

func (s mongoSpace) Client() record.OnceClient { return s.Namespace.Client() }

func (s mongoSpace) Quietly() Space { return mongoSpace{s.Namespace.Quietly()} }

// Holds accepts every kind: whether a server supports it shows only when it is created.
func (mongoSpace) Holds(context.Context, record.KindSpec) error { return nil }

func (s mongoSpace) EndTransactions(ctx context.Context, former Space) error {
	f, ok := former.(mongoSpace)
	if !ok {
		return errOtherBackend
	}
	return s.Namespace.EndTransactions(ctx, f.Namespace)
}

type mongoScratch mongostore.Config

func (s mongoScratch) check(ctx context.Context) error {
	return mongostore.CheckScratch(ctx, mongostore.Config(s))
}

func (s mongoScratch) claim(ctx context.Context) error {
	return mongostore.ClaimScratch(ctx, mongostore.Config(s))
}

func (s mongoScratch) drop(ctx context.Context) error {
	return mongostore.DropScratch(ctx, mongostore.Config(s))
}
