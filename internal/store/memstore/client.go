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

// Select returns the selected live records of the present moment.
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

// listed returns the records of a list. Callers hold mu.
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
		// Tombstones are invisible to clients.
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

// ListNames returns the names of records and, like a real backend, of tombstones. So a caller that
// takes each name for a record fails in its tests.
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
		// Tombstones count here, because a backend may return their names.
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
		// Fence classes without a rename do not change the token, so check the mark and the block.
		if col.mark != "" || len(s.cluster.blocked) > 0 {
			return fmt.Errorf("%s as %s: %w", kind, col.name, record.ErrFenced)
		}
	}
	// Nothing is stored before all mutations have passed their conditions.
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
	// Earlier mutations of the same call count.
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
		return nil // nothing to delete; keep a tombstone with its guard
	}
	// A client's write removes the guard, so that any write of the next direction is newer.
	t.set(col, m.Key, state{doc: m.Doc})
	return nil
}
