package mongostore

import (
	"context"

	"dbcontroller.dev/internal/store/mongostore/changes"
	"dbcontroller.dev/internal/store/mongostore/client"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/provision"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/record"
)

// Namespace is one MongoDB database. Its methods may be called concurrently. The caller of Open
// closes it.
//
// Each part of its work has a type of its own. All of them share the connection.
type Namespace struct {
	*conn.Conn
	*fences.Fences         // takes collections away from their writers, and gives them back
	*provision.Collections // creates, describes, changes and drops collections and their indexes
	*recordio.Records      // reads and writes records
	*changes.Feed          // follows changes

	health gauges
}

var (
	_ record.Store       = (*Namespace)(nil)
	_ record.Namespace   = (*Namespace)(nil)
	_ record.Provisioner = (*Namespace)(nil)
	_ record.Fencer      = (*Namespace)(nil)
)

// Open connects to the database and waits until a primary answers. An error that waiting may cure
// is record.ErrUnavailable. The caller closes the Namespace.
func Open(ctx context.Context, cfg conn.Config) (*Namespace, error) {
	c, err := conn.Open(ctx, cfg, nil)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New returns the namespace of an open connection, with all its parts. It sends no command.
func New(c *conn.Conn) *Namespace {
	f := fences.New(c)
	return &Namespace{Conn: c, Fences: f, Collections: provision.New(c, f), Records: recordio.New(c, f), Feed: changes.New(c)}
}

// Quietly returns the same namespace with Config.Quiet. It shares the connections, which only n
// closes.
func (n *Namespace) Quietly() *Namespace { return New(n.AsQuiet()) }

// Client returns a client of the namespace. The namespace must stay open while the client is in
// use. One client serves a whole process.
func (n *Namespace) Client() *client.Client { return client.New(n.Conn, n.Records, n.Feed) }

// EndTransactions ends the transactions that former left open because no server answered. n has
// another login of the same user, or is former itself. If it fails, it keeps the sessions for the
// next call; the server ends their transactions after a minute.
func (n *Namespace) EndTransactions(ctx context.Context, former *Namespace) error {
	return n.EndTransactionsOf(ctx, former.Conn)
}
