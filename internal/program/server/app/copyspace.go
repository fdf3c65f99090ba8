package app

import (
	"context"

	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// copySpace is the namespace that holds copies, active or not. Writes need no gate: each one holds
// only under the term of its follower, and the collections have nothing that a sync reads.
type copySpace struct {
	places
	client record.Client
}

var _ copies.Space = (*copySpace)(nil)

func (s *copySpace) news(d upgradestate.Deployment) { s.latest.Store(&d) }

// Get returns a record or record.ErrNotFound.
func (s *copySpace) Get(ctx context.Context, kind, key string) (rec record.Record, err error) {
	err = s.use(ctx, []string{kind}, func(toks record.Tokens) (err error) {
		rec, err = s.client.Get(ctx, toks[kind], record.StringKey(key))
		return err
	})
	return rec, err
}

// Names returns those of these names of a kind that have a record.
func (s *copySpace) Names(ctx context.Context, kind string, of []string) (names []string, err error) {
	var recs []record.Record
	sels := make([]record.Selector, 0, len(of))
	for _, name := range of {
		sels = append(sels, record.Selector{Kind: kind, Key: record.StringKey(name)})
	}
	if len(sels) == 0 {
		return nil, nil
	}
	err = s.use(ctx, []string{kind}, func(toks record.Tokens) (err error) {
		recs, err = s.client.Select(ctx, record.SelectRequest{Tokens: toks, Select: sels, AsList: true})
		return err
	})
	for _, rec := range recs {
		name, _ := rec.Key.Name()
		names = append(names, name)
	}
	return names, err
}

// ListBounded returns records in name order, up to the one that reaches a number of bytes.
func (s *copySpace) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error) {
	err = s.use(ctx, []string{kind}, func(toks record.Tokens) (err error) {
		more = false // each attempt has its own answer
		recs, err = s.client.List(ctx, record.ListRequest{Token: toks[kind], Prefix: prefix, After: after, Limit: limit, Bytes: bytes, Cut: &more})
		return err
	})
	return recs, more || len(recs) == limit, err
}

// Write makes all mutations or none. It waits while a switch is under way, so that copies never hold
// one up.
func (s *copySpace) Write(ctx context.Context, ms []record.Mutation) error {
	if d := s.latest.Load(); d != nil && d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		for now := range s.deployments.Watch(ctx) {
			s.latest.Store(&now)
			if now.Upgrade == nil || now.Upgrade.State != upgradestate.Switching {
				break
			}
		}
	}
	var kinds []string
	for _, m := range ms {
		kinds = append(kinds, m.Kind)
	}
	return s.use(ctx, kinds, func(toks record.Tokens) error { return s.client.Write(ctx, toks, ms) })
}
