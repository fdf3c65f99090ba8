package sealed

import (
	"context"
	"errors"

	"dbcontroller.dev/record"
)

const (
	// readTogether is the number of records that are read at once for their conditions. One read for
	// each record of a large write would take longer than writeLimit.
	readTogether = 100
	// readBytes bounds the documents of such a read. Larger ones are read one by one.
	readBytes = 8 << 20
)

// conditions reads the records of a write that have conditions, in the order of the mutations. It
// keeps the records of one read only.
type conditions struct {
	*Client
	toks  record.Tokens
	ms    []record.Mutation
	found map[record.Selector]record.Record
	until int // found is about the mutations before this one
}

// get returns the stored record of a mutation, or record.ErrNotFound.
func (c *conditions) get(ctx context.Context, i int, tok record.Token) (record.Record, error) {
	if i >= c.until {
		if err := c.read(ctx, i); err != nil {
			return record.Record{}, err
		}
	}
	sel := record.Selector{Kind: c.ms[i].Kind, Key: c.ms[i].Key}
	if r, there := c.found[sel]; there {
		return r, nil
	}
	// It was not read, or is missing, whose error belongs to the database.
	return c.OnceClient.Get(ctx, tok, sel.Key)
}

// read reads the records of the next mutations with conditions. It reads none if they are too large.
func (c *conditions) read(ctx context.Context, from int) error {
	c.found = map[record.Selector]record.Record{}
	var sels []record.Selector
	for c.until = from; c.until < len(c.ms) && len(sels) < readTogether; c.until++ {
		if m := c.ms[c.until]; m.Match != nil && !c.toks[m.Kind].Fixed {
			sels = append(sels, record.Selector{Kind: m.Kind, Key: m.Key})
		}
	}
	if len(sels) < 2 {
		return nil // get reads it
	}
	recs, err := c.OnceClient.Select(ctx, record.SelectRequest{Tokens: c.toks, Select: sels, Bytes: readBytes})
	if unsupported := new(record.UnsupportedError); errors.Is(err, record.ErrTooLarge) || errors.As(err, &unsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, r := range recs {
		c.found[record.Selector{Kind: r.Kind, Key: r.Key}] = r
	}
	return nil
}
