package databases

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
)

// Check is asked of a database that has answered, before anything else uses it. An error
// that is record.ErrUnavailable is tried again, another one refuses the database. It may
// not keep the namespace, which is closed after an error.
type Check func(ctx context.Context, db config.DB, ns *mongostore.Namespace) error

// Config says how the databases of a process are opened.
type Config struct {
	App    string // as the servers' logs show this process
	Checks []Check
	Log    *zap.Logger
	Quiet  bool // of mongostore.Config
}

// Set is the databases of one configuration.
type Set struct {
	byVersion map[string]*Database
	stop      context.CancelFunc
}

// New makes a set in which nothing is open yet. The caller closes it.
func New(cfg config.Config, how Config) *Set {
	ctx, stop := context.WithCancel(context.Background()) // until Close
	s := &Set{byVersion: map[string]*Database{}, stop: stop}
	for _, db := range cfg.DBs {
		s.byVersion[db.Version] = &Database{db: db, how: how, file: filepath.Base(cfg.Path), life: ctx, look: make(chan struct{}, 1)}
	}
	return s
}

// Database returns that of a version, or nil where none is configured.
func (s *Set) Database(version string) *Database {
	if s == nil {
		return nil
	}
	return s.byVersion[version]
}

// Unavailable reports whether an error of a database, of whatever command, passes by itself.
func Unavailable(err error) bool { return mongostore.IsUnavailable(err) }

// Close closes what is open, and lets nothing be opened any more.
func (s *Set) Close(ctx context.Context) {
	s.stop()
	for _, d := range s.byVersion {
		d.close(ctx)
	}
}

// MongoConfig is how the database of a configuration is reached by the process of a name.
func MongoConfig(db config.DB, app string, log *zap.Logger) mongostore.Config {
	return mongostore.Config{
		URI: db.Endpoint.Reveal(), Database: db.Database, PoolSize: db.PoolSize, AppName: app, Log: log,
	}
}

// open makes one attempt.
func open(ctx context.Context, db config.DB, how Config, file string) (*mongostore.Namespace, error) {
	if far := db.Plaintext(); len(far) > 0 {
		how.Log.Warn("plaintext connection to a database on another machine: who can listen there reads the records; add tls=true to the connection string",
			zap.String("version", db.Version), zap.Strings("hosts", far))
	}
	mongo := MongoConfig(db, how.App, how.Log)
	mongo.Quiet = how.Quiet
	ns, err := mongostore.Open(ctx, mongo)
	if err != nil {
		return nil, fmt.Errorf("database of %s: %w: start the server, or correct mongo.endpoint in %s", db.Version, err, file)
	}
	for _, check := range how.Checks {
		if err := check(ctx, db, ns); err != nil {
			if closeErr := ns.Close(context.WithoutCancel(ctx)); closeErr != nil {
				how.Log.Debug("close database", zap.Error(closeErr))
			}
			return nil, fmt.Errorf("database of %s: %w", db.Version, err)
		}
	}
	return ns, nil
}

// Belongs is the Check that a database is the one that the deployment means, and that the
// two are of one time. Where there is no such deployment, nothing of it may have lived there.
func Belongs(ds *deployment.Store) Check {
	return func(ctx context.Context, db config.DB, ns *mongostore.Namespace) error {
		return identity.Belongs(ctx, ds, deployment.ErrNotFound, ds.Name(), db.Version, ns)
	}
}

// recordWait is how long a stream waits for the coordination store, before what is known of
// the deployment has to do.
const recordWait = 2 * time.Second

// Watcher is a database for those that only watch: each stream is refused if the database is
// not the one that the deployment means. It goes on without the coordination store.
func (d *Database) Watcher(ds *deployment.Store) record.Watcher {
	known := identity.Remember(ds, recordWait, deployment.ErrNotFound)
	return identity.GuardWatcher(d, func(ctx context.Context) error {
		return identity.Same(ctx, known, map[string]record.Marker{d.db.Version: d})
	})
}
