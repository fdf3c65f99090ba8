package faultstore

import (
	"context"
	"fmt"

	"dbcontroller/record"
)

var _ record.OnceClient = (*Client)(nil)

// Client is a record.Client whose commands meet an Injector.
type Client struct {
	inner record.Client
	inj   Injector
}

// WrapClient puts an injector before a client.
func WrapClient(c record.Client, inj Injector) *Client { return &Client{inner: c, inj: inj} }

func (c *Client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	return do(ctx, c.inj, opOf(Get, tok), func() (record.Record, error) { return c.inner.Get(ctx, tok, key) })
}

func (c *Client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	return do(ctx, c.inj, opOf(List, req.Token), func() ([]record.Record, error) { return c.inner.List(ctx, req) })
}

func (c *Client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	op := Op{Command: Write}
	seen := map[string]bool{}
	for _, m := range ms {
		if !seen[m.Kind] {
			seen[m.Kind] = true
			op.Kinds, op.Tokens = append(op.Kinds, m.Kind), append(op.Tokens, toks[m.Kind])
		}
	}
	return doErr(ctx, c.inj, op, func() error { return c.inner.Write(ctx, toks, ms) })
}

// CreateOnce is record.OnceClient's. The wrapped client must be one.
func (c *Client) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (bool, error) {
	once, ok := c.inner.(record.OnceClient)
	if !ok {
		return false, &record.UnsupportedError{What: "create once", Reason: fmt.Sprintf("%T cannot", c.inner)}
	}
	return do(ctx, c.inj, opOfAll(Once, toks), func() (bool, error) { return once.CreateOnce(ctx, toks, marker, records) })
}
