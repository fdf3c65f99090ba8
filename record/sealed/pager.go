package sealed

import (
	"context"

	"dbcontroller.dev/record"
)

var _ record.Pager = (*Client)(nil)

func (c *Client) pager() (record.Pager, error) {
	p, ok := c.OnceClient.(record.Pager)
	if !ok {
		return nil, &record.UnsupportedError{What: "pages made of several kinds", Reason: "this database cannot read them together"}
	}
	return p, nil
}

// ListWith lists, and what also selects, decrypted.
func (c *Client) ListWith(ctx context.Context, toks record.Tokens, list record.ListRequest, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	p, err := c.pager()
	if err != nil {
		return nil, nil, err
	}
	// also may be called again, and the last time is for what is returned.
	_, with, err = p.ListWith(ctx, toks, list, func(stored []record.Record) (sels []record.Selector, err error) {
		if listed, err = c.sealer.openAll(ctx, only(list.Token), stored); err != nil {
			return nil, err
		}
		return also(listed)
	})
	if err != nil {
		return nil, nil, err
	}
	with, err = c.sealer.openAll(ctx, of(toks), with)
	return listed, with, err
}

// SelectAt returns live records and the moment that they show, decrypted.
func (c *Client) SelectAt(ctx context.Context, req record.SelectRequest) (record.Snapshot, error) {
	p, err := c.pager()
	if err != nil {
		return record.Snapshot{}, err
	}
	snap, err := p.SelectAt(ctx, req)
	if err == nil {
		snap.Records, err = c.sealer.openAll(ctx, of(req.Tokens), snap.Records)
	}
	return snap, err
}

// Since returns changes, which are hints and hold nothing that is encrypted.
func (c *Client) Since(ctx context.Context, kinds []record.KindSpec, after record.Position) (record.ChangeBatch, error) {
	p, err := c.pager()
	if err != nil {
		return record.ChangeBatch{}, err
	}
	return p.Since(ctx, kinds, after)
}
