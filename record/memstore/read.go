package memstore

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
)

// Read returns the records selected at one snapshot: as old as Options.Lag allows, and
// not older than NotBefore.
func (s *Store) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	if err := s.begin(ctx); err != nil {
		return record.Snapshot{}, err
	}
	defer s.cluster.mu.Unlock()
	cols, err := s.resolveAll(req.Tokens, func(yield func(string) bool) {
		for _, sel := range req.Select {
			if !yield(sel.Kind) {
				return
			}
		}
	})
	if err != nil {
		return record.Snapshot{}, err
	}
	clock, err := s.cluster.snapshot(req.NotBefore)
	if err != nil {
		return record.Snapshot{}, err
	}
	snap := record.Snapshot{Version: versionAt(clock)}
	seen := map[*row]bool{}
	size := 0
	for _, sel := range req.Select {
		for _, r := range selected(cols[sel.Kind], sel) {
			if seen[r] {
				continue
			}
			seen[r] = true
			if rec, ok := r.record(sel.Kind, r.at(clock), req.Guards, req.KeysOnly); ok {
				snap.Records = append(snap.Records, rec)
				if size += len(rec.Doc); req.Bytes > 0 && size > req.Bytes {
					return record.Snapshot{}, fmt.Errorf("read %d bytes: %w", size, record.ErrTooLarge)
				}
			}
		}
	}
	return snap, nil
}

func selected(col *collection, sel record.Selector) []*row {
	if sel.Prefix {
		name, ok := sel.Key.Name()
		if !ok {
			return nil
		}
		return col.withPrefix(name)
	}
	if i, found := col.find(sel.Key); found {
		return col.rows[i : i+1]
	}
	return nil
}
