package databases

import (
	"context"
	"errors"
	"sync/atomic"

	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
)

var _ record.OnceClient = (*client)(nil)

// client is a service's client of a database.
type client struct {
	db    *Database
	inner atomic.Pointer[bound]
}

// bound is the client of a namespace; another login is another one.
type bound struct {
	ns     *mongostore.Namespace
	client *mongostore.Client
}

// Client returns a client that opens the database with its first command.
func (d *Database) Client() record.OnceClient { return &client{db: d} }

func (c *client) get(ctx context.Context) (*bound, error) {
	for {
		ns, err := c.db.Get(ctx)
		if err != nil {
			return nil, err
		}
		b := c.inner.Load()
		if b != nil && b.ns == ns {
			return b, nil
		}
		c.inner.CompareAndSwap(b, &bound{ns, ns.Client()})
	}
}

// ask makes a call, and again with another login when the server does not take the one of now:
// the password was changed, and a connection had to be made. What was refused was not sent.
func ask[T any](ctx context.Context, c *client, call func(*mongostore.Client) (T, error)) (T, error) {
	for {
		b, err := c.get(ctx)
		if err != nil {
			var none T
			return none, err
		}
		out, err := call(b.client)
		if !mongostore.IsLoginRefused(err) || errors.Is(err, record.ErrUnknown) || !c.db.relogin(ctx, b.ns) {
			return out, err
		}
	}
}

func (c *client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	return ask(ctx, c, func(m *mongostore.Client) (record.Record, error) { return m.Get(ctx, tok, key) })
}

func (c *client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	return ask(ctx, c, func(m *mongostore.Client) ([]record.Record, error) { return m.List(ctx, req) })
}

func (c *client) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	return ask(ctx, c, func(m *mongostore.Client) ([]record.Record, error) { return m.Select(ctx, req) })
}

func (c *client) ListNames(ctx context.Context, req record.ListRequest) ([]string, error) {
	return ask(ctx, c, func(m *mongostore.Client) ([]string, error) { return m.ListNames(ctx, req) })
}

func (c *client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	_, err := ask(ctx, c, func(m *mongostore.Client) (struct{}, error) { return struct{}{}, m.Write(ctx, toks, ms) })
	return err
}

func (c *client) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (bool, error) {
	return ask(ctx, c, func(m *mongostore.Client) (bool, error) { return m.CreateOnce(ctx, toks, marker, records) })
}
