package databases

import (
	"context"
	"errors"
	"sync/atomic"

	"dbcontroller.dev/record"
)

var _ record.OnceClient = (*client)(nil)

// client is a service's client of a database.
type client struct {
	db    *Database
	inner atomic.Pointer[bound]
}

// bound is a client and the way that it uses. A changed login makes a new one.
type bound struct {
	way    *way
	client record.OnceClient
}

// Client returns a client that opens the database with its first command.
func (d *Database) Client() record.OnceClient { return &client{db: d} }

func (c *client) get(ctx context.Context) (*bound, error) {
	for {
		w, err := c.db.way(ctx)
		if err != nil {
			return nil, err
		}
		b := c.inner.Load()
		if b != nil && b.way == w {
			return b, nil
		}
		// Another goroutine may have bound it first. The loop takes the winner.
		c.inner.CompareAndSwap(b, &bound{w, w.Client()})
	}
}

// ask makes a call. If the server refuses the login, it repeats the call with a new login. That is
// safe: the server never processed the refused call.
func ask[T any](ctx context.Context, c *client, call func(record.OnceClient) (T, error)) (T, error) {
	for {
		b, err := c.get(ctx)
		if err != nil {
			var none T
			return none, err
		}
		out, err := call(b.client)
		// A call with an unknown outcome may have taken effect, so it must not be repeated.
		if !c.db.engine.loginRefused(err) || errors.Is(err, record.ErrUnknown) || !c.db.relogin(ctx, b.way) {
			return out, err
		}
	}
}

func (c *client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	return ask(ctx, c, func(m record.OnceClient) (record.Record, error) { return m.Get(ctx, tok, key) })
}

func (c *client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	return ask(ctx, c, func(m record.OnceClient) ([]record.Record, error) { return m.List(ctx, req) })
}

func (c *client) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	return ask(ctx, c, func(m record.OnceClient) ([]record.Record, error) { return m.Select(ctx, req) })
}

func (c *client) ListNames(ctx context.Context, req record.ListRequest) ([]string, error) {
	return ask(ctx, c, func(m record.OnceClient) ([]string, error) { return m.ListNames(ctx, req) })
}

func (c *client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	_, err := ask(ctx, c, func(m record.OnceClient) (struct{}, error) { return struct{}{}, m.Write(ctx, toks, ms) })
	return err
}

func (c *client) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (bool, error) {
	return ask(ctx, c, func(m record.OnceClient) (bool, error) { return m.CreateOnce(ctx, toks, marker, records) })
}
