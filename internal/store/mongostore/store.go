package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// Namespace is one MongoDB database. Its methods may be called concurrently. The caller of Open
// closes it.
//
// Each part of its work has a type of its own. All of them share the connection.
type Namespace struct {
	*Conn
	*Fences      // takes collections away from their writers, and gives them back
	*Collections // creates, describes, changes and drops collections and their indexes
	*Records     // reads and writes records
	*Feed        // follows changes

	health gauges
}

var _ record.Store = (*Namespace)(nil)

// Open connects to the database and waits until a primary answers. An error that waiting may cure
// is record.ErrUnavailable. The caller closes the Namespace.
func Open(ctx context.Context, cfg Config) (*Namespace, error) {
	return open(ctx, cfg, nil)
}

// open is Open with a dialer. Nil means the driver's own.
func open(ctx context.Context, cfg Config, dialer options.ContextDialer) (*Namespace, error) {
	c, err := openConn(ctx, cfg, dialer)
	if err != nil {
		return nil, err
	}
	return assemble(c), nil
}

// newNamespace returns the namespace of a database. It sends no command.
func newNamespace(client *mongo.Client, database, location string, log *zap.Logger) *Namespace {
	return assemble(newConn(client, database, location, log))
}

// assemble returns the namespace with all its parts.
func assemble(c *Conn) *Namespace {
	fences := newFences(c)
	return &Namespace{Conn: c, Fences: fences, Collections: newCollections(c, fences), Records: newRecords(c, fences), Feed: newFeed(c)}
}

// Quietly returns the same namespace with Config.Quiet. It shares the connections, which only n
// closes.
func (n *Namespace) Quietly() *Namespace { return assemble(n.quietly()) }

// Client returns a client of the namespace. The namespace must stay open while the client is in
// use. One client serves a whole process.
func (n *Namespace) Client() *Client { return newClient(n.Conn, n.Records, n.Feed) }

// EndTransactions ends the transactions that former left open because no server answered. n has
// another login of the same user, or is former itself. If it fails, it keeps the sessions for the
// next call; the server ends their transactions after a minute.
func (n *Namespace) EndTransactions(ctx context.Context, former *Namespace) error {
	return n.endTransactions(ctx, former.Conn)
}
