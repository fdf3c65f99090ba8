package databases

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// Space is an open database of any backend. A backend without a feature answers with the neutral
// result, so that callers never ask which backend they use.
type Space interface {
	record.Namespace
	record.Monitor
	// Client returns a client of the namespace.
	Client() record.OnceClient
	// Quietly returns the same database, used so that other clients of its server do not notice.
	Quietly() Space
	// Survey returns facts about the server.
	Survey(ctx context.Context) (record.Survey, error)
	// Sharding returns the distribution of a collection over shards.
	Sharding(ctx context.Context, kind record.KindSpec, name string) (record.Sharding, error)
	// Holds returns a *record.UnsupportedError if the backend cannot hold the kind as declared.
	Holds(ctx context.Context, kind record.KindSpec) error
	// Moves reports whether the server recreates collections by itself, as a sharded cluster does.
	Moves(ctx context.Context) (bool, error)
	// Moved follows collections from a position, at which each existed, to the present. now has the
	// token of each one that the server kept or moved, and broken the reason for every other kind.
	Moved(ctx context.Context, from record.Position, toks record.Tokens) (now record.Tokens, broken map[string]string, err error)
	// PinChunks stops the moves of a sharded cluster that a fence of these kinds would wait for, and
	// waits for running ones. It returns an error if one does not end soon.
	PinChunks(ctx context.Context, toks []record.Token) error
	// UnpinChunks ends what PinChunks of any process did.
	UnpinChunks(ctx context.Context) error
	// Names returns the names of collections that start with prefix.
	Names(ctx context.Context, prefix string) ([]string, error)
	// Sweep drops the collections whose names start with prefix.
	Sweep(ctx context.Context, prefix string) error
	// Clear drops the backend's own data besides the kinds. It returns the names of foreign objects
	// in the database.
	Clear(ctx context.Context) (left []string, err error)
	// Vacate is Clear for a database in which collections of others remain: it removes the backend's
	// own data as soon as no deployment uses the database. It returns what remains.
	Vacate(ctx context.Context) (left []string, err error)
	// CloseName makes clients fail that still use the name of a retired version's kind.
	CloseName(ctx context.Context, f record.Fence, said string, known []string) ([]record.Breach, error)
	// EndTransactions ends transactions that another login to the same database left open.
	EndTransactions(ctx context.Context, former Space) error
	Close(ctx context.Context) error
}

// engine is a backend without an open database.
type engine interface {
	// open connects. Its error names the setting to correct.
	open(ctx context.Context, db config.DB, how Config, file string) (Space, error)
	// scratch returns access to a scratch database beside the real ones.
	scratch(db config.DB, how Config) scratcher
	// unavailable reports whether a command failed because of a temporary outage.
	unavailable(err error) bool
	// unprivileged reports whether a command failed because its login lacks a privilege.
	unprivileged(err error) bool
	// loginRefused reports whether a command was not sent because the server refused the login.
	loginRefused(err error) bool
	// documents returns a connection string with which other programs read records as documents. It
	// reports false if the backend stores them in its own form.
	documents(db config.DB) (config.Secret, bool)
	// product is the name of the backend in results.
	product() string
	// shell is a command line that lists the content of a database.
	shell(db config.DB) string
	// roles returns the commands that grant a part its privileges; see Roles.
	roles(dbs []config.DB, kinds map[string][]string, part Part, scratch bool) (string, error)
	// once is the maximum number of initial records for a namespace with that many kinds.
	once(db config.DB, kinds int) int
}

// scratcher checks, creates and drops a scratch database.
type scratcher interface {
	check(ctx context.Context) error
	claim(ctx context.Context) error
	drop(ctx context.Context) error
}

// engines are all backends by their name in the configuration. Nothing outside this package depends
// on the backend of a database.
var engines = map[string]engine{"mongo": mongoEngine{}, "etcd": etcdEngine{}}

func engineOf(db config.DB) engine {
	e, ok := engines[db.Backend]
	if !ok {
		panic(fmt.Sprintf("database of %s: backend %q", db.Version, db.Backend)) // config has checked the name
	}
	return e
}

// way is an open database under one login.
type way struct {
	Space         // for commands; encrypts if configured
	backend Space // without encryption
}

// open makes one attempt to open the database and runs all checks.
func (d *Database) open(ctx context.Context, db config.DB) (*way, error) {
	space, err := Open(ctx, db, d.how, d.file)
	if err != nil {
		return nil, fmt.Errorf("database of %s: %w", db.Version, err)
	}
	encrypted := d.encrypt(space)
	w := &way{Space: encrypted, backend: space}
	// Run the checks before any caller gets the database: a command could write to the wrong one.
	for _, check := range d.how.Checks {
		if err := check(ctx, db, w.Space); err != nil {
			d.end(ctx, w)
			return nil, fmt.Errorf("database of %s: %w", db.Version, err)
		}
	}
	if err := encrypted.ns.Sealer().Check(ctx); err != nil && (!d.how.AnyState || !errors.Is(err, sealed.ErrState)) {
		d.end(ctx, w)
		return nil, fmt.Errorf("database of %s: %w", db.Version, err)
	}
	return w, nil
}

// Open opens a database without any Check and without a Set. file is the name of the configuration
// in messages. The caller closes it.
func Open(ctx context.Context, db config.DB, how Config, file string) (Space, error) {
	if far := db.Plaintext(); len(far) > 0 {
		how.Log.Warn("plaintext connection to a database on another machine: who can listen there reads the records; configure TLS",
			zap.String("version", db.Version), zap.Strings("hosts", far))
	}
	return engineOf(db).open(ctx, db, how, file)
}

// Unavailable reports whether an error from any backend is a temporary outage.
func Unavailable(err error) bool { return anyEngine(engine.unavailable, err) }

// Unprivileged reports whether an error from any backend is a missing privilege.
func Unprivileged(err error) bool { return anyEngine(engine.unprivileged, err) }

// Once returns the maximum number of initial records for a version with that many kinds. One
// transaction creates them.
func Once(db config.DB, kinds int) int { return engineOf(db).once(db, kinds) }

// Documents returns a connection string with which other programs read the records as documents. It
// reports false if they cannot.
func Documents(db config.DB) (config.Secret, bool) { return engineOf(db).documents(db) }

// Product returns the name of a database's backend in results, such as mongodb.
func Product(db config.DB) string { return engineOf(db).product() }

// Shell returns a command line that lists the content of a database.
func Shell(db config.DB) string { return engineOf(db).shell(db) }

func anyEngine(holds func(engine, error) bool, err error) bool {
	for _, e := range engines {
		if holds(e, err) {
			return true
		}
	}
	return false
}

// CheckScratch tests whether the login could create and use the scratch database db. It changes
// nothing that exists.
func CheckScratch(ctx context.Context, db config.DB, how Config) error {
	return scratchOf(db, how).check(ctx)
}

// ClaimScratch creates an empty scratch database. It refuses a database that others created.
func ClaimScratch(ctx context.Context, db config.DB, how Config) error {
	return scratchOf(db, how).claim(ctx)
}

// DropScratch drops a database that ClaimScratch created. A missing one is no error.
func DropScratch(ctx context.Context, db config.DB, how Config) error {
	return scratchOf(db, how).drop(ctx)
}

// scratchOf uses the login that the files hold now.
func scratchOf(db config.DB, how Config) scratcher {
	if now, err := db.Renewed(); err == nil {
		db = now
	}
	how.Quiet = true
	return engineOf(db).scratch(db, how)
}

var errOtherBackend = errors.New("it is another backend's")
