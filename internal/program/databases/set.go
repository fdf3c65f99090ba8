package databases

import (
	"context"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
)

// Check tests a database that has answered, before anything else uses it. An error that is
// record.ErrUnavailable leads to a retry; any other error refuses the database. A Check must not
// keep ns, which is closed after an error.
type Check func(ctx context.Context, db config.DB, ns record.Namespace) error

// Config sets how a process opens its databases.
type Config struct {
	App    string // name of this process in the servers' logs
	Checks []Check
	Log    *zap.Logger
	// Quiet keeps other clients of the servers from noticing the work. Rehearsals and the proof of
	// the rollback use it.
	Quiet bool
	// AnyState also opens databases whose key state is refused, so that an operator can examine it.
	AnyState bool

	// Clients shares the connections to one MongoDB among several Sets. Nil: this Set has its own.
	Clients *Clients

	seen *mongostore.Horizon // shared by all logins to one database; nil: per connection
}

// Clients are the connections that several Sets of a process share.
type Clients = mongostore.Clients

// ClientsOf returns the Clients for the Sets of all these configurations.
func ClientsOf(all ...config.Config) *Clients {
	n := 0
	for _, cfg := range all {
		n += len(cfg.DBs)
	}
	return mongostore.NewClients(n)
}

// Set holds the databases of one configuration. It is safe for concurrent use.
type Set struct {
	byVersion map[string]*Database
	stop      context.CancelFunc
}

// New makes a set without opening any database. The caller closes it.
func New(cfg config.Config, how Config) *Set {
	ctx, stop := context.WithCancel(context.Background()) // until Close
	s := &Set{byVersion: map[string]*Database{}, stop: stop}
	for _, db := range cfg.DBs {
		how.seen = new(mongostore.Horizon)
		s.byVersion[db.Version] = &Database{db: db, engine: engineOf(db), how: how, cfg: cfg, file: filepath.Base(cfg.Path), life: ctx, look: make(chan struct{}, 1)}
	}
	return s
}

// Database returns the database of a version, or nil if none is configured. A nil Set has none.
func (s *Set) Database(version string) *Database {
	if s == nil {
		return nil
	}
	return s.byVersion[version]
}

// Close closes all databases. Later calls fail.
func (s *Set) Close(ctx context.Context) {
	// Cancel running attempts first, or closing would wait for their timeouts.
	s.stop()
	for _, d := range s.byVersion {
		d.close(ctx)
	}
}

// Belongs returns the Check that a database belongs to the deployment and is of the same time as
// its record. If there is no such deployment, its data must not be in the database either.
func Belongs(ds *deployment.Store) Check {
	return func(ctx context.Context, db config.DB, ns record.Namespace) error {
		return identity.Belongs(ctx, ds, deployment.ErrNotFound, ds.Name(), db.Version, ns)
	}
}

// recordWait is the time that a stream waits for etcd before it uses the last known deployment.
const recordWait = 2 * time.Second

// Watcher returns the database for processes that only watch. It refuses a stream if the database
// is not the deployment's. It keeps working without etcd.
func (d *Database) Watcher(ds *deployment.Store) record.Watcher {
	known := identity.Remember(ds, recordWait, deployment.ErrNotFound)
	return identity.GuardWatcher(d, func(ctx context.Context) error {
		return identity.Same(ctx, known, map[string]record.Marker{d.db.Version: d})
	})
}
