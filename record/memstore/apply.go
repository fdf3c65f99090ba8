package memstore

import (
	"context"
	"fmt"

	"dbcontroller/record"
)

// Apply writes each group whose guards are all lower.
func (s *Store) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return s.eachGroup(ctx, b, s.applyGroup)
}

// eachGroup runs one transaction for each group. The lock is let go in between, so
// that nobody comes to rely on a batch being atomic.
func (s *Store) eachGroup(ctx context.Context, b record.Batch, do func(*txn, map[string]*collection, record.GroupWrite, record.Guard) record.Result) ([]record.Result, error) {
	results := make([]record.Result, 0, len(b.Groups))
	for _, g := range b.Groups {
		if err := s.begin(ctx); err != nil {
			return nil, err
		}
		res, err := s.group(b, g, do)
		s.cluster.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("group %s: %w", g.Group, err)
		}
		results = append(results, res)
	}
	return results, nil
}

func (s *Store) group(b record.Batch, g record.GroupWrite, do func(*txn, map[string]*collection, record.GroupWrite, record.Guard) record.Result) (record.Result, error) {
	if g.Anchor < 0 || g.Anchor >= len(g.Writes) {
		return record.Result{}, fmt.Errorf("anchor %d of %d writes", g.Anchor, len(g.Writes))
	}
	cols, err := s.resolveAll(b.Tokens, func(yield func(string) bool) {
		for _, w := range g.Writes {
			if !yield(w.Kind) {
				return
			}
		}
	})
	if err != nil {
		return record.Result{}, err
	}
	for _, w := range g.Writes {
		if err := checkDoc(w.Key, w.Doc); err != nil {
			return record.Result{Outcome: record.Refused, Err: err}, nil
		}
	}
	return do(s.newTxn(), cols, g, record.Guard{Epoch: b.Epoch, Version: g.Version}), nil
}

func (s *Store) applyGroup(t *txn, cols map[string]*collection, g record.GroupWrite, guard record.Guard) record.Result {
	for _, w := range g.Writes {
		if t.get(cols[w.Kind], w.Key).guard.Compare(guard) >= 0 {
			return record.Result{Outcome: record.Stale}
		}
	}
	for _, w := range g.Writes {
		if w.Expect != nil && t.get(cols[w.Kind], w.Key).guard != *w.Expect {
			return record.Result{Outcome: record.Changed}
		}
	}
	return writeGroup(t, cols, g, guard)
}

func writeGroup(t *txn, cols map[string]*collection, g record.GroupWrite, guard record.Guard) record.Result {
	for _, w := range g.Writes {
		t.set(cols[w.Kind], w.Key, state{doc: w.Doc, guard: guard})
	}
	if err := t.commit(true); err != nil {
		return record.Result{Outcome: record.Refused, Err: err}
	}
	return record.Result{Outcome: record.Applied}
}
