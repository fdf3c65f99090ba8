package memstore

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
)

var _ record.OnceClient = (*Store)(nil)

// CreateOnce creates records together with a marker. Each managed collection of toks stores the
// marker.
func (s *Store) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (made bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	defer s.cluster.mu.Unlock()
	cols, err := s.resolveAll(toks, func(yield func(string) bool) {
		for _, r := range records {
			if !yield(r.Kind) {
				return
			}
		}
	})
	if err != nil {
		return false, err
	}
	// Check the fences before the markers: a stale token must be an error even if the work is done.
	for kind, col := range cols {
		if col.mark != "" || len(s.cluster.blocked) > 0 {
			return false, fmt.Errorf("%s as %s: %w", kind, col.name, record.ErrFenced)
		}
	}
	var marked []*collection
	for _, tok := range toks {
		// Find the collection under any name, because the marker follows it.
		col := s.db.byID[tok.ID]
		if tok.ID == "" {
			col = s.db.byName[tok.Name]
		}
		switch {
		case tok.Fixed || col == nil:
		case col.once[marker]:
			return false, nil
		default:
			marked = append(marked, col)
		}
	}
	t := s.newTxn()
	for _, r := range records {
		if r.Doc == nil {
			return false, fmt.Errorf("%s %s: no document to create", r.Kind, r.Key)
		}
		// An existing record stays as it is.
		if t.get(cols[r.Kind], r.Key).live() {
			continue
		}
		if err := mutate(t, cols[r.Kind], toks[r.Kind], record.Mutation{Kind: r.Kind, Key: r.Key, Doc: r.Doc, Absent: true}); err != nil {
			return false, fmt.Errorf("%s %s: %w", r.Kind, r.Key, err)
		}
	}
	if err := t.commit(false); err != nil {
		return false, err
	}
	// The commit succeeded under the lock, so records and marker appear together.
	for _, col := range marked {
		if col.once == nil {
			col.once = map[string]bool{}
		}
		col.once[marker] = true
	}
	return true, nil
}
