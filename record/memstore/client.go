package memstore

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
)

// Get returns a live record.
func (s *Store) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return record.Record{}, err
	}
	defer s.cluster.mu.Unlock()
	st := col.at(key, s.cluster.clock)
	if !st.live() {
		return record.Record{}, fmt.Errorf("%s %s: %w", tok.Kind, key, record.ErrNotFound)
	}
	return record.Record{Kind: tok.Kind, Key: key, Doc: st.doc}, nil
}

// Select returns the live records selected at one moment, the present one.
func (s *Store) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	cols, err := s.resolveAll(req.Tokens, kindsOf(req.Select))
	if err != nil {
		return nil, err
	}
	return gather(cols, record.ReadRequest{Select: req.Select, Bytes: req.Bytes}, s.cluster.clock)
}

// List returns live records in name order.
func (s *Store) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	col, err := s.open(ctx, req.Token, s.resolve)
	if err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	return s.listed(col, req), nil
}

// listed are the records that a list returns. Callers hold mu.
func (s *Store) listed(col *collection, req record.ListRequest) (out []record.Record) {
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	size := 0
	for _, r := range col.withPrefix(req.Prefix) {
		name, _ := r.key.Name()
		if req.After != "" && name <= req.After {
			continue
		}
		if rec, ok := r.record(req.Token.Kind, r.at(s.cluster.clock), false, false); ok {
			if out = append(out, rec); req.Full(&size, rec.Doc) {
				break
			}
		}
		if len(out) == limit {
			break
		}
	}
	return out
}

// ListNames returns the names of records and, as a backend may, of tombstones: a caller that
// counts on a name that they have must find out here.
func (s *Store) ListNames(ctx context.Context, req record.ListRequest) ([]string, error) {
	col, err := s.open(ctx, req.Token, s.resolve)
	if err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	var names []string
	for _, r := range col.withPrefix(req.Prefix) {
		name, _ := r.key.Name()
		if len(names) == limit {
			break
		}
		if name > req.After && !r.at(s.cluster.clock).absent() {
			names = append(names, name)
		}
	}
	return names, nil
}

// Write makes all mutations or none.
func (s *Store) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	cols, err := s.resolveAll(toks, func(yield func(string) bool) {
		for _, m := range ms {
			if !yield(m.Kind) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for kind, col := range cols {
		// Classes that do not rename leave the token as it was: the mark is the fence.
		if col.mark != "" || len(s.cluster.blocked) > 0 {
			return fmt.Errorf("%s as %s: %w", kind, col.name, record.ErrFenced)
		}
	}
	t := s.newTxn()
	for _, m := range ms {
		if err := mutate(t, cols[m.Kind], toks[m.Kind], m); err != nil {
			return fmt.Errorf("%s %s: %w", m.Kind, m.Key, err)
		}
	}
	return t.commit(false)
}

func mutate(t *txn, col *collection, tok record.Token, m record.Mutation) error {
	if err := checkDoc(tok, m.Key, m.Doc); err != nil {
		return record.Refuse(err)
	}
	st := t.get(col, m.Key)
	switch {
	case m.Absent && st.live():
		return record.ErrExists
	case (m.Exists || m.Match != nil) && !st.live():
		return record.ErrNotFound
	case m.Match != nil && !m.Match.Holds(st.doc):
		return record.ErrMismatch
	}
	if m.Doc == nil && !st.live() {
		return nil // nothing to delete; a tombstone stays what it is
	}
	// A client's write carries no guard: the next direction finds it lower than any.
	t.set(col, m.Key, state{doc: m.Doc})
	return nil
}
