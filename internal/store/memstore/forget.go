package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// Forget removes the claim, markers and label of a collection, and the guards and tombstones of a
// fixed-name kind.
func (s *Store) Forget(ctx context.Context, tok record.Token) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	col := s.db.byID[tok.ID]
	if col == nil {
		return nil
	}
	if _, blocked := s.cluster.blocked[col.id]; blocked || col.mark != "" || s.db.views[tok.Kind] == col {
		return fmt.Errorf("forget %s: %w", tok.Kind, record.ErrFenced)
	}
	maps.DeleteFunc(s.db.marks.kinds, func(_ string, c record.Claim) bool { return c.ID == col.id })
	col.once, col.closed, col.ended, col.label = nil, nil, nil, nil
	if !col.fixed {
		return nil
	}
	for _, r := range slices.Clone(col.rows) { // put removes the rows of tombstones
		if at := r.at(s.cluster.clock); !at.guard.IsZero() {
			s.cluster.clock++
			col.put(r.key, state{at: s.cluster.clock, doc: at.doc}, s.cluster.oldestSnapshot())
		}
	}
	return nil
}

// FreeNumber looks at the collection under the kind's own name. A dropped one leaves nothing.
func (s *Store) FreeNumber(ctx context.Context, kind string) (uint64, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.cluster.mu.Unlock()
	col := s.db.byName[kind]
	if col == nil {
		return 1, nil
	}
	return record.FreeNumber(kind, slices.Concat(slices.Collect(maps.Keys(col.closed)), slices.Collect(maps.Keys(col.ended))))
}
