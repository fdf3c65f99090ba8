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

// ListWith lists records, and reads those that also selects, all decrypted.
func (c *Client) ListWith(ctx context.Context, toks record.Tokens, list record.ListRequest, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	p, err := c.pager()
	if err != nil {
		return nil, nil, err
	}
	// also may run several times. Its last run belongs to the returned records.
	_, with, err = p.ListWith(ctx, toks, list, func(stored []record.Record) (sels []record.Selector, err error) {
		if listed, err = c.sealer.openAll(ctx, only(list.Token), stored); err != nil {
			return nil, err
		}
		return also(listed)
	})
	if err != nil {
		return nil, nil, err
	}
	// Decrypt outside of the call, so that retries do not decrypt for nothing.
	with, err = c.sealer.openAll(ctx, of(toks), with)
	return listed, with, err
}

// SelectAt returns live records of one moment, decrypted, and the version of that moment.
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

// Since returns changes. Changes are hints and hold no encrypted content.
func (c *Client) Since(ctx context.Context, kinds []record.KindSpec, after record.Position) (record.ChangeBatch, error) {
	p, err := c.pager()
	if err != nil {
		return record.ChangeBatch{}, err
	}
	return p.Since(ctx, kinds, after)
}
