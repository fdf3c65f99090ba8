package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// Config locates a namespace.
type Config struct {
	URI      string      // connection string; never shown, see Location
	Database string      // the namespace
	PoolSize int         // connections at most; 0: 64
	AppName  string      // shown by the server's logs and currentOp; empty: "dbcontroller"
	Log      *zap.Logger // nil: none
	// Quiet keeps what is done here from being felt by anybody else on the server: no
	// session is ended, whatever it holds up, and no fence takes the lock of the whole
	// server or blocks its writes. Fixed-name kinds get the validator class. It is for
	// rehearsals, and for the proof of the rollback.
	Quiet bool
	// Seen is shared with those who have opened the same database in this process before, by
	// another login; nil: nobody has.
	Seen *Horizon
}

// selectTimeout bounds the wait for a usable server. A failover takes about 10 s with
// default settings, and callers retry with backoff, so a longer wait only hides loss.
const selectTimeout = 15 * time.Second

// A primary that hangs (a frozen machine, a network that drops what it is given)
// answers nothing and closes nothing. What was sent to it waits until the driver gives its
// connections up, which is after heartbeatEvery and twice connectTimeout, about when a set
// elects another primary with default settings. The driver's own values make that 70 s.
// A connection string may set others.
const (
	connectTimeout = 5 * time.Second
	heartbeatEvery = 2 * time.Second
)

// Namespace is one MongoDB database. Its methods may be called concurrently.
type Namespace struct {
	client   *mongo.Client
	db       *mongo.Database // majority write and read concern, primary
	name     string          // of the database
	location string          // hosts and database, without secrets
	app      string          // AppName
	quiet    bool            // Config.Quiet
	log      *zap.Logger
	left     *leftOpen // shared by those of one client
	seen     *Horizon  // likewise

	sides     sideCollections
	offending offending
	health    gauges
	pulse     pulse

	// What many kinds ask for at once is done together.
	names  rounds[[]string, []collection] // collections and views by name
	checks rounds[struct{}, bool]         // whether collection UUIDs are checked
	notes  rounds[notice, struct{}]
	ends   rounds[string, []string]             // which fences to these names have ended
	gates  rounds[record.Fence, struct{}]       // makes gates
	passes rounds[record.Fence, struct{}]       // goes through them
	moves  rounds[viewMove, struct{}]           // renames collections under the views of fences
	closed rounds[string, struct{}]             // drops those of fences to these names
	looks  rounds[string, map[string]error]     // what keeps collections from being renamed now
	proofs rounds[identified, map[string]error] // why collections do not have their names
	strays rounds[string, []strayNote]          // what was made under the names of fenced kinds

	// Why the server cannot do what a fence needs, nil: it can.
	tested recent[*record.UnsupportedError] // refuse other collection UUIDs
	probed recent[*record.UnsupportedError] // rename a collection and leave a view at once
}

var _ record.Store = (*Namespace)(nil)

// Open connects to the database and waits until a primary answers. The caller closes
// the Namespace.
func Open(ctx context.Context, cfg Config) (*Namespace, error) {
	return open(ctx, cfg, nil)
}

// open is Open with a dialer; nil is the driver's own.
func open(ctx context.Context, cfg Config, dialer options.ContextDialer) (*Namespace, error) {
	if cfg.Database == "" {
		return nil, errors.New("open mongodb: no database name")
	}
	if cfg.PoolSize == 0 {
		cfg.PoolSize = 64
	}
	if cfg.AppName == "" {
		cfg.AppName = "dbcontroller"
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	opts := options.Client().ApplyURI(cfg.URI)
	if err := opts.Validate(); err != nil {
		shown := redactError(cfg.URI, err)
		if lookupFailed(err) {
			shown = &unavailableError{shown}
		}
		return nil, fmt.Errorf("open mongodb: %w", shown)
	}
	// What the connection string sets for concerns and preferences must not weaken what
	// is acknowledged or read, so these are set after it.
	opts.SetAppName(cfg.AppName).
		SetMaxPoolSize(uint64(max(cfg.PoolSize, 2))).
		SetServerSelectionTimeout(selectTimeout).
		SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetRetryWrites(true).
		SetRetryReads(true)
	if opts.ConnectTimeout == nil {
		opts.SetConnectTimeout(connectTimeout)
	}
	if opts.HeartbeatInterval == nil {
		opts.SetHeartbeatInterval(heartbeatEvery)
	}
	conns := newConnections(dialer)
	opts.SetDialer(conns).SetMonitor(conns.monitor())
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, fmt.Errorf("open mongodb: %w", redactError(cfg.URI, err))
	}
	n := newNamespace(client, cfg.Database, locationOf(opts.Hosts, cfg.Database), cfg.Log)
	n.app, n.quiet = cfg.AppName, cfg.Quiet
	if cfg.Seen != nil {
		n.seen = cfg.Seen
	}
	if err := client.Ping(ctx, readpref.Primary()); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return nil, errors.Join(
			fmt.Errorf("open %s: %w", n.location, asUnavailable(err, redactError(cfg.URI, n.oneLine(err)))),
			client.Disconnect(closeCtx))
	}
	return n, nil
}

// newNamespace is a database that client reaches; nothing is asked of it.
func newNamespace(client *mongo.Client, database, location string, log *zap.Logger) *Namespace {
	n := &Namespace{client: client, db: client.Database(database), name: database, location: location, log: log, left: new(leftOpen), seen: new(Horizon)}
	n.names.do, n.checks.do, n.notes.do, n.ends.do = n.listNamed, n.checksUUIDs, n.writeNotes, n.unfenced
	n.gates.do, n.passes.do, n.closed.do = n.makeGates, n.throughGates, n.dropGates
	n.looks.do, n.proofs.do, n.proofs.most = n.lookForBuilds, n.proveNames, provenAtOnce
	n.strays.do = n.notedStrays
	n.gates.most, n.passes.most, n.closed.most = atOnce, atOnce, atOnce
	n.moves.do, n.moves.most = n.moveUnderViews, atOnce
	return n
}

// Quietly is the same namespace with Config.Quiet, over the same connections, which it does
// not close.
func (n *Namespace) Quietly() *Namespace {
	quiet := newNamespace(n.client, n.name, n.location, n.log)
	quiet.app, quiet.left, quiet.seen, quiet.quiet = n.app, n.left, n.seen, true
	return quiet
}

// closeTimeout bounds how long clean-up waits for connections in use.
const closeTimeout = 5 * time.Second

// Close ends all connections. Streams opened from the Namespace fail afterwards.
func (n *Namespace) Close(ctx context.Context) error {
	if err := n.client.Disconnect(ctx); err != nil {
		return fmt.Errorf("close %s: %w", n.location, err)
	}
	return nil
}

// Location returns where the namespace is, without secrets.
func (n *Namespace) Location() string { return n.location }

// run sends a command that was built as raw BSON and returns the reply. The error is
// the driver's, without what it quotes; callers classify it. A reply with write errors is returned with the
// mongo.WriteException.
func (n *Namespace) run(ctx context.Context, cmd []byte) (bson.Raw, error) {
	res := n.db.RunCommand(ctx, bson.Raw(cmd))
	raw, err := res.Raw()
	if err == nil {
		err = res.Err()
	}
	return raw, concealed(err)
}
