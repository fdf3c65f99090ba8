package databases

import (
	"context"

	"dbcontroller.dev/record"
)

var _ record.Pager = (*client)(nil)

// pager returns the Pager of a backend's client, or an error if it has none.
func pager(c record.OnceClient) (record.Pager, error) {
	p, ok := c.(record.Pager)
	if !ok {
		return nil, &record.UnsupportedError{What: "pages made of several kinds", Reason: "this database cannot read them together"}
	}
	return p, nil
}

func (c *client) ListWith(ctx context.Context, toks record.Tokens, list record.ListRequest, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	listed, err = ask(ctx, c, func(m record.OnceClient) (recs []record.Record, err error) {
		p, err := pager(m)
		if err == nil {
			recs, with, err = p.ListWith(ctx, toks, list, also)
		}
		return recs, err
	})
	return listed, with, err
}

func (c *client) SelectAt(ctx context.Context, req record.SelectRequest) (record.Snapshot, error) {
	return ask(ctx, c, func(m record.OnceClient) (record.Snapshot, error) {
		p, err := pager(m)
		if err != nil {
			return record.Snapshot{}, err
		}
		return p.SelectAt(ctx, req)
	})
}

func (c *client) Since(ctx context.Context, kinds []record.KindSpec, after record.Position) (record.ChangeBatch, error) {
	return ask(ctx, c, func(m record.OnceClient) (record.ChangeBatch, error) {
		p, err := pager(m)
		if err != nil {
			return record.ChangeBatch{}, err
		}
		return p.Since(ctx, kinds, after)
	})
}
