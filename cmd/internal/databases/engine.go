package databases

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/sealed"
)

// Space is an open database, whatever its backend is: all that programs ask of one. What a
// backend has nothing of, it answers with what that means, so that nobody has to ask which
// backend it is.
type Space interface {
	record.Namespace
	record.Monitor
	// Client returns a client of the namespace.
	Client() record.OnceClient
	// Quietly returns the same database, used so that nobody else on its server feels it.
	Quietly() Space
	// Survey looks at the server.
	Survey(ctx context.Context) (record.Survey, error)
	// Sharding looks how a collection is spread over shards.
	Sharding(ctx context.Context, kind record.KindSpec, name string) (record.Sharding, error)
	// Holds fails with a *record.UnsupportedError for a kind that cannot be there as it is
	// declared.
	Holds(ctx context.Context, kind record.KindSpec) error
	// Names returns the names of collections that begin with a prefix.
	Names(ctx context.Context, prefix string) ([]string, error)
	// Sweep drops the collections whose names begin with a prefix.
	Sweep(ctx context.Context, prefix string) error
	// Clear drops what the backend keeps besides the kinds, and returns what others have in the
	// database.
	Clear(ctx context.Context) (left []string, err error)
	// CloseName has everyone who still uses the name of a retired version's kind get an error.
	CloseName(ctx context.Context, f record.Fence, said string, known []string) ([]record.Breach, error)
	// EndTransactions ends what another login's way to the same database has left open.
	EndTransactions(ctx context.Context, former Space) error
	Close(ctx context.Context) error
}

// engine is a backend before a database of it is open.
type engine interface {
	// open connects. Its error says what a person does about it.
	open(ctx context.Context, db config.DB, how Config, file string) (Space, error)
	// scratch is how a database that may be thrown away is made next to the real ones.
	scratch(db config.DB, how Config) scratcher
	// unavailable reports whether an error of a command passes by itself.
	unavailable(err error) bool
	// unprivileged reports whether an error of a command is that of a login that lacks a
	// privilege.
	unprivileged(err error) bool
	// loginRefused reports whether a command was not sent, since the server does not take the
	// login of now.
	loginRefused(err error) bool
	// documents is the connection string by which other programs read records as documents; false:
	// how they are kept is the backend's own.
	documents(db config.DB) (config.Secret, bool)
	// product is what the backend is called in results.
	product() string
	// shell is a command that shows a person what a database holds.
	shell(db config.DB) string
	// roles is what gives a part the privileges that it needs, for mongosh (Roles).
	roles(dbs []config.DB, kinds map[string][]string, part Part, scratch bool) (string, error)
	// once is how many records a namespace of so many kinds can be given to start with.
	once(db config.DB, kinds int) int
}

// scratcher makes a database that may be thrown away, and throws it away.
type scratcher interface {
	check(ctx context.Context) error
	claim(ctx context.Context) error
	drop(ctx context.Context) error
}

// engines are all backends, by the name that a configuration gives them. Nothing outside of
// this package depends on which one a database has.
var engines = map[string]engine{"mongo": mongoEngine{}, "etcd": etcdEngine{}}

func engineOf(db config.DB) engine {
	e, ok := engines[db.Backend]
	if !ok {
		panic(fmt.Sprintf("database of %s: backend %q", db.Version, db.Backend)) // config knows the same
	}
	return e
}

// way is a login's way to a database.
type way struct {
	Space         // what commands go through
	backend Space // the backend's own
}

// open makes one attempt.
func (d *Database) open(ctx context.Context, db config.DB) (*way, error) {
	space, err := Open(ctx, db, d.how, d.file)
	if err != nil {
		return nil, fmt.Errorf("database of %s: %w", db.Version, err)
	}
	encrypted := d.encrypt(space)
	w := &way{Space: encrypted, backend: space}
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

// Open opens a database at once, asking no Check, for commands that need nothing else of a
// Set. file names the configuration in messages. The caller closes it.
func Open(ctx context.Context, db config.DB, how Config, file string) (Space, error) {
	if far := db.Plaintext(); len(far) > 0 {
		how.Log.Warn("plaintext connection to a database on another machine: who can listen there reads the records; configure TLS",
			zap.String("version", db.Version), zap.Strings("hosts", far))
	}
	return engineOf(db).open(ctx, db, how, file)
}

// Unavailable reports whether an error of a database, of whatever command and backend, passes
// by itself.
func Unavailable(err error) bool { return anyEngine(engine.unavailable, err) }

// Unprivileged reports whether an error of a database is that of a login that lacks a
// privilege.
func Unprivileged(err error) bool { return anyEngine(engine.unprivileged, err) }

// Once is how many records a version of so many kinds can start with: one transaction makes them.
func Once(db config.DB, kinds int) int { return engineOf(db).once(db, kinds) }

// Documents returns the connection string by which other programs read the records of a database
// as documents; false: they cannot.
func Documents(db config.DB) (config.Secret, bool) { return engineOf(db).documents(db) }

// Product is what the backend of a database is called in results, such as mongodb.
func Product(db config.DB) string { return engineOf(db).product() }

// Shell is a command that shows a person what a database holds.
func Shell(db config.DB) string { return engineOf(db).shell(db) }

func anyEngine(holds func(engine, error) bool, err error) bool {
	for _, e := range engines {
		if holds(e, err) {
			return true
		}
	}
	return false
}

// CheckScratch tries whether a database could be used that may be thrown away: its name is not
// one of the configuration. It leaves what it finds.
func CheckScratch(ctx context.Context, db config.DB, how Config) error {
	return scratchOf(db, how).check(ctx)
}

// ClaimScratch makes such a database, empty. What others have made is refused.
func ClaimScratch(ctx context.Context, db config.DB, how Config) error {
	return scratchOf(db, how).claim(ctx)
}

// DropScratch drops a database that ClaimScratch has made. One that is not there is fine.
func DropScratch(ctx context.Context, db config.DB, how Config) error {
	return scratchOf(db, how).drop(ctx)
}

// scratchOf logs in with what files hold now.
func scratchOf(db config.DB, how Config) scratcher {
	if now, err := db.Renewed(); err == nil {
		db = now
	}
	how.Quiet = true
	return engineOf(db).scratch(db, how)
}

var errOtherBackend = errors.New("it is another backend's")
