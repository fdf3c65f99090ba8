package sealed

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var _ record.OnceClient = (*Client)(nil)

// Client is a client whose managed kinds are encrypted. ListNames is the backend's own.
type Client struct {
	record.OnceClient
	sealer *Sealer
}

// Client puts s before a client.
func (s *Sealer) Client(c record.OnceClient) *Client { return &Client{c, s} }

// Get returns a live record, decrypted.
func (c *Client) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	r, err := c.OnceClient.Get(ctx, tok, key)
	if err != nil {
		return r, err
	}
	return c.sealer.Open(ctx, tok, r)
}

// Select returns live records, decrypted.
func (c *Client) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	rs, err := c.OnceClient.Select(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.sealer.openAll(ctx, of(req.Tokens), rs)
}

// List returns live records, decrypted.
func (c *Client) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	rs, err := c.OnceClient.List(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.sealer.openAll(ctx, only(req.Token), rs)
}

// maxTries is how often a write is begun again whose record changes all the time, and never in
// what its condition is about.
const maxTries = 100

// Write makes all mutations or none. A condition on what is in a record is checked here, on
// the record as it is decrypted, and the write is then conditional on the very envelope that was
// read. A record that was put under another key in between is read again. So it is wherever
// there are keys: the database would find no field in a record that was encrypted a moment ago.
// A write under a key that is no longer the one is refused by the database, and made again.
func (c *Client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	if !anyManaged(toks) {
		return c.OnceClient.Write(ctx, toks, ms)
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	for try := 1; ; try++ {
		w, err := c.sealer.writing(ctx)
		if err != nil {
			return err
		}
		stored, again, err := c.mutations(ctx, w, toks, ms)
		if err != nil {
			return err
		}
		err = c.OnceClient.Write(ctx, toks, stored)
		if c.sealer.late(ctx, err, try) {
			continue
		}
		if !again || !errors.Is(err, record.ErrMismatch) || ctx.Err() != nil || try == maxTries {
			return err
		}
	}
}

// mutations are ms as they are sent. again: a condition stands for what was read a moment ago, so
// that its failing may mean nothing.
func (c *Client) mutations(ctx context.Context, w writing, toks record.Tokens, ms []record.Mutation) (out []record.Mutation, again bool, err error) {
	out = make([]record.Mutation, len(ms))
	for i, m := range ms {
		tok := toks[m.Kind]
		if tok.Kind == "" {
			tok.Kind = m.Kind
		}
		var checks bool // nothing but that the record is what it was
		if !tok.Fixed && m.Match != nil && w.compares {
			again = true
			stored, err := c.matching(ctx, tok, m)
			if err != nil {
				return nil, false, fmt.Errorf("write %s %s: %w", m.Kind, m.Key, err)
			}
			e, is := envelopeOf(stored)
			checks = is && m.Doc != nil && m.Match.Path == "" && bytes.Equal(m.Doc, m.Match.Value.Value)
			switch {
			case checks:
				m.Doc = stored
				fallthrough
			case !is: // not a field of it: the same record under a key has none
				m.Match = record.MatchDoc(stored)
			default:
				m.Match = &record.Match{Path: Field, Value: e.value}
			}
		}
		if !checks {
			if m.Doc, err = w.seal(tok, m.Key, m.Doc); err != nil {
				return nil, false, fmt.Errorf("write %s %s: %w", m.Kind, m.Key, err)
			}
		}
		out[i] = m
	}
	return out, again, nil
}

// matching returns what is stored of a record that a condition holds for.
func (c *Client) matching(ctx context.Context, tok record.Token, m record.Mutation) (bson.Raw, error) {
	r, err := c.OnceClient.Get(ctx, tok, m.Key)
	if err != nil {
		return nil, err
	}
	stored := r.Doc
	if r, err = c.sealer.Open(ctx, tok, r); err != nil {
		return nil, err
	}
	if !m.Match.Holds(r.Doc) {
		return nil, record.ErrMismatch
	}
	return stored, nil
}

// CreateOnce writes the first records of a namespace, encrypted.
func (c *Client) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	for try := 1; ; try++ {
		w, err := c.sealer.writing(ctx)
		if err != nil {
			return false, err
		}
		stored := make([]record.Record, len(records))
		for i, r := range records {
			tok := toks[r.Kind]
			if r.Doc, err = w.seal(tok, r.Key, r.Doc); err != nil {
				return false, fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
			}
			stored[i] = r
		}
		made, err := c.OnceClient.CreateOnce(ctx, toks, marker, stored)
		if !c.sealer.late(ctx, err, try) {
			return made, err
		}
	}
}
