package conn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

// Config locates a namespace. Opening uses a copy.
type Config struct {
	URI      string      // connection string; never shown, see Location
	Database string      // database of the namespace
	PoolSize int         // connections at most; 0: 64
	AppName  string      // shown in the server's logs and currentOp; empty: "dbcontroller"
	Log      *zap.Logger // nil: none
	// Quiet keeps this namespace from disturbing other users of the server. It kills no session,
	// even one that blocks it. No fence takes the lock of the whole server or blocks its writes;
	// fixed-name kinds get the validator class. It is for rehearsals, and for the proof of the
	// rollback.
	Quiet bool
	// Seen is the horizon of earlier Namespaces for the same database in this process, with another
	// login. Nil starts a new one.
	Seen *Horizon
	// Clients shares the connections with other namespaces. Nil: this one has its own.
	Clients *Clients
	// Certificates identifies the contents of the certificate files that URI names. The driver reads
	// these files once, so namespaces with other contents get another client. Empty: no such files.
	Certificates string
}

// selectTimeout bounds the wait for a usable server. A failover takes about 10 s with default
// settings, and callers retry with backoff. A longer wait would only hide the loss.
const selectTimeout = 15 * time.Second

// Timeouts for a primary that hangs (a frozen machine, a network that drops packets) and neither
// answers nor closes connections. Commands to it wait until the driver closes its connections. That
// happens after heartbeatEvery and twice connectTimeout, about when a replica set with default
// settings elects another primary. With the driver's own values it takes 70 s. A connection string
// may set others.
const (
	connectTimeout = 5 * time.Second
	heartbeatEvery = 2 * time.Second
)

// connecting is the number of connections that may be opened at the same time. Each takes several round
// trips. With the driver's own value of 2, the workers of a far database would wait for one another.
const connecting = 8

// Conn is a connection to one MongoDB database, with what all parts of a namespace share. Its
// methods may be called concurrently. The caller of Open closes it.
type Conn struct {
	Mongo    *mongo.Client
	DB       *mongo.Database // majority write and read concern, primary
	Name     string          // of the database
	location string          // hosts and database, without secrets
	App      string          // AppName
	Quiet    bool            // Config.Quiet
	Log      *zap.Logger
	left     *leftOpen // shared by connections of one client
	Seen     *Horizon  // likewise
	conns    *connections
	leave    func(context.Context) error // of Config.Clients; nil: disconnect
	mongos   atomic.Pointer[bool]        // IsMongos; nil: no server has answered yet

	sides sideCollections
	Pulse pulse

	// Requests of many kinds at once are combined into few commands.
	names   Rounds[[]string, []Collection] // collections and views by name
	Indexed lookups[[]ListedIndex]         // lists of indexes by collection
	notes   Rounds[notice, struct{}]
	ends    Rounds[string, []string] // removed fences, by their To
}

// Open connects to a database and waits until a primary answers. An error that waiting may cure
// is record.ErrUnavailable. A nil dialer means the driver's own.
func Open(ctx context.Context, cfg Config, dialer options.ContextDialer) (*Conn, error) {
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
	// The error may quote the connection string, so hide its secrets.
	if err := opts.Validate(); err != nil {
		shown := redactError(cfg.URI, err)
		if lookupFailed(err) {
			shown = &UnavailableError{shown}
		}
		return nil, fmt.Errorf("open mongodb: %w", shown)
	}
	// Set these after the connection string: its concerns and preferences must not weaken
	// acknowledgements or reads.
	opts.SetAppName(cfg.AppName).
		SetMaxPoolSize(cfg.Clients.pool(max(cfg.PoolSize, 2))).
		SetServerSelectionTimeout(selectTimeout).
		SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetRetryWrites(true).
		SetRetryReads(true)
	// The connection string may set its own timeouts.
	if opts.ConnectTimeout == nil {
		opts.SetConnectTimeout(connectTimeout)
	}
	if opts.HeartbeatInterval == nil {
		opts.SetHeartbeatInterval(heartbeatEvery)
	}
	if opts.MaxConnecting == nil {
		opts.SetMaxConnecting(connecting)
	}
	s, leave, err := cfg.Clients.join(cfg, func() (*shared, error) {
		conns := newConnections(dialer)
		opts.SetDialer(conns).SetMonitor(conns.monitor())
		client, err := mongo.Connect(opts)
		return &shared{client: client, conns: conns, left: new(leftOpen)}, err
	})
	if err != nil {
		return nil, fmt.Errorf("open mongodb: %w", redactError(cfg.URI, err))
	}
	n := New(s.client, cfg.Database, locationOf(opts.Hosts, cfg.Database), cfg.Log)
	n.App, n.Quiet, n.conns, n.left, n.leave = cfg.AppName, cfg.Quiet, s.conns, s.left, leave
	if cfg.Seen != nil {
		n.Seen = cfg.Seen
	}
	// Fail now rather than at the first command of a caller.
	if err := s.client.Ping(ctx, readpref.Primary()); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		return nil, errors.Join(
			fmt.Errorf("open %s: %w", n.location, AsUnavailable(err, redactError(cfg.URI, n.OneLine(err)))),
			leave(closeCtx))
	}
	// So that it is known while no server answers. Without an answer it is asked again.
	_, _ = n.IsMongos(ctx)
	return n, nil
}

// New returns the connection to a database. It sends no command.
func New(client *mongo.Client, database, location string, log *zap.Logger) *Conn {
	n := &Conn{Mongo: client, DB: client.Database(database), Name: database, location: location, Log: log, left: new(leftOpen), Seen: new(Horizon)}
	n.names.Do, n.notes.Do, n.ends.Do = n.listNamed, n.writeNotes, n.Unfenced
	n.names.Patience, n.ends.Patience = Looking, Looking
	n.Indexed.Do = func(ctx context.Context, name string) ([]ListedIndex, error) {
		return n.ListIndexes(ctx, record.Token{Name: name})
	}
	return n
}

// AsQuiet returns the same connection with Config.Quiet. It shares the client, which only n closes.
func (n *Conn) AsQuiet() *Conn {
	quiet := New(n.Mongo, n.Name, n.location, n.Log)
	quiet.App, quiet.left, quiet.Seen, quiet.conns, quiet.Quiet = n.App, n.left, n.Seen, n.conns, true
	return quiet
}

// CloseTimeout bounds the wait of clean-up for connections in use.
const CloseTimeout = 5 * time.Second

// Close closes all connections, or leaves them to the other namespaces of Config.Clients. The caller
// ends the streams of the namespace first, or they fail.
func (n *Conn) Close(ctx context.Context) error {
	leave := n.Mongo.Disconnect
	if n.leave != nil {
		leave = n.leave
	}
	if err := leave(ctx); err != nil {
		return fmt.Errorf("close %s: %w", n.location, err)
	}
	return nil
}

// Location returns the hosts and the database, without secrets.
func (n *Conn) Location() string { return n.location }

// Run sends a command in raw BSON and returns the reply. It returns the driver's error without
// quoted values; callers classify it. For a reply with write errors it returns both the reply and
// the mongo.WriteException.
func (n *Conn) Run(ctx context.Context, cmd []byte) (bson.Raw, error) {
	return run(ctx, n.DB, cmd)
}

// RunAdmin is Run for a command of the admin database.
func (n *Conn) RunAdmin(ctx context.Context, cmd []byte) (bson.Raw, error) {
	return run(ctx, n.Admin(), cmd)
}

func run(ctx context.Context, db *mongo.Database, cmd []byte) (bson.Raw, error) {
	res := db.RunCommand(ctx, bson.Raw(cmd))
	raw, err := res.Raw()
	if err == nil {
		err = res.Err()
	}
	return raw, Concealed(err)
}
