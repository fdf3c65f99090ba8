package databases

import (
	"context"
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
type Check func(ctx context.Context, db config.DB, ns record.Namespace) error

// Config says how the databases of a process are opened.
type Config struct {
	App    string // as the servers' logs show this process
	Checks []Check
	Log    *zap.Logger
	// Quiet keeps what is done from being felt by anybody else on the servers: rehearsals, and
	// the proof of the rollback.
	Quiet bool
	// AnyState opens databases whose state of keys is refused, for the operator who looks at it.
	AnyState bool

	seen *mongostore.Horizon // of the one database, by whatever login; nil: of this one
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
		how.seen = new(mongostore.Horizon)
		s.byVersion[db.Version] = &Database{db: db, engine: engineOf(db), how: how, cfg: cfg, file: filepath.Base(cfg.Path), life: ctx, look: make(chan struct{}, 1)}
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

// Close closes what is open, and lets nothing be opened any longer.
func (s *Set) Close(ctx context.Context) {
	s.stop()
	for _, d := range s.byVersion {
		d.close(ctx)
	}
}

// Belongs is the Check that a database is the one that the deployment means, and that the
// two are of one time. Where there is no such deployment, nothing of it may have lived there.
func Belongs(ds *deployment.Store) Check {
	return func(ctx context.Context, db config.DB, ns record.Namespace) error {
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
