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

// Client is a client with encrypted managed kinds. ListNames is the backend's own, since names are
// not encrypted.
type Client struct {
	record.OnceClient
	sealer *Sealer
}

// Client wraps c so that its managed kinds are encrypted.
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

// maxTries limits the retries of a conditional write whose record keeps changing although its
// condition still holds.
const maxTries = 100

// Write makes all mutations or none. It checks a condition on a record's content here, on the
// decrypted document, and then makes the write conditional on the stored envelope. If a rotation
// re-encrypted the record in between, Write reads it again. It works this way whenever there are
// keys, because the database finds no field in a record that was encrypted a moment ago. If the
// database refuses a write under an outdated key, Write repeats it with the new one.
func (c *Client) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	if !anyManaged(toks) {
		return c.OnceClient.Write(ctx, toks, ms)
	}
	// Writes wait while a controller changes the key. Give up if that never completes.
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
		// The key was outdated. late has read the State again, so encrypt with the new key.
		if c.sealer.late(ctx, err, try) {
			continue
		}
		// Our own condition on the envelope failed. Read again before reporting a conflict.
		if !again || !errors.Is(err, record.ErrMismatch) || ctx.Err() != nil || try == maxTries {
			return err
		}
	}
}

// mutations returns ms in stored form. again: a condition comes from our own read, so if it fails,
// read again before reporting a conflict.
func (c *Client) mutations(ctx context.Context, w writing, toks record.Tokens, ms []record.Mutation) (out []record.Mutation, again bool, err error) {
	out = make([]record.Mutation, len(ms))
	present := conditions{c, toks, ms, nil, 0}
	for i, m := range ms {
		tok := toks[m.Kind]
		if tok.Kind == "" {
			tok.Kind = m.Kind
		}
		var checks bool // the mutation only checks that the record is unchanged
		// The database cannot check a condition on encrypted content.
		if !tok.Fixed && m.Match != nil && w.compares {
			again = true
			stored, err := c.matching(ctx, tok, m, func() (record.Record, error) { return present.get(ctx, i, tok) })
			if err != nil {
				return nil, false, fmt.Errorf("write %s %s: %w", m.Kind, m.Key, err)
			}
			e, is := envelopeOf(stored)
			checks = is && m.Doc != nil && m.Match.Path == "" && bytes.Equal(m.Doc, m.Match.Value.Value)
			switch {
			// A check must not re-encrypt the document: a new envelope would be a change for
			// readers.
			case checks:
				m.Doc = stored
				fallthrough
			case !is: // match the whole plain document, since an encrypted form of it has none of its fields
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

// matching returns the stored form of a record that satisfies the condition.
func (c *Client) matching(ctx context.Context, tok record.Token, m record.Mutation, get func() (record.Record, error)) (bson.Raw, error) {
	r, err := get()
	if err != nil {
		return nil, err
	}
	// Keep the stored form, because Open replaces it.
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
		// If the database refuses the key, encrypt again with the present one.
		made, err := c.OnceClient.CreateOnce(ctx, toks, marker, stored)
		if !c.sealer.late(ctx, err, try) {
			return made, err
		}
	}
}
