package databases

import (
	"context"
	"sync/atomic"

	"dbcontroller/record"
	"dbcontroller/record/mongostore"
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

func (c *client) get(ctx context.Context) (*mongostore.Client, error) {
	for {
		ns, err := c.db.Get(ctx)
		if err != nil {
			return nil, err
		}
		b := c.inner.Load()
		if b != nil && b.ns == ns {
			return b.client, nil
		}
		c.inner.CompareAndSwap(b, &bound{ns, ns.Client()})
	}
}

// Get is record.Client's.
func (c *client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	inner, err := c.get(ctx)
	if err != nil {
		return record.Record{}, err
	}
	return inner.Get(ctx, tok, key)
}

// List is record.Client's.
func (c *client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	inner, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	return inner.List(ctx, req)
}

// Write is record.Client's.
func (c *client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	inner, err := c.get(ctx)
	if err != nil {
		return err
	}
	return inner.Write(ctx, toks, ms)
}

// CreateOnce is record.OnceClient's.
func (c *client) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (bool, error) {
	inner, err := c.get(ctx)
	if err != nil {
		return false, err
	}
	return inner.CreateOnce(ctx, toks, marker, records)
}
