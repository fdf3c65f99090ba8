package memstore

import (
	"context"
	"fmt"
	"iter"

	"dbcontroller.dev/record"
)

// Read returns the selected records at one snapshot: as old as Options.Lag allows, and not older
// than NotBefore.
func (s *Store) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	if err := s.begin(ctx); err != nil {
		return record.Snapshot{}, err
	}
	defer s.cluster.mu.Unlock()
	// Check the tokens first: even an empty answer must come from the right collections.
	cols, err := s.resolveAll(req.Tokens, kindsOf(req.Select))
	if err != nil {
		return record.Snapshot{}, err
	}
	clock, err := s.cluster.snapshot(req.NotBefore)
	if err != nil {
		return record.Snapshot{}, err
	}
	recs, err := gather(cols, req, clock)
	if err != nil {
		return record.Snapshot{}, err
	}
	return record.Snapshot{Version: versionAt(clock), Records: recs}, nil
}

// kindsOf returns the kinds in the selectors.
func kindsOf(sels []record.Selector) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, sel := range sels {
			if !yield(sel.Kind) {
				return
			}
		}
	}
}

// gather returns the selected records as of a clock value, each once.
func gather(cols map[string]*collection, req record.ReadRequest, clock uint64) (recs []record.Record, err error) {
	seen := map[*row]bool{}
	size := 0
	for _, sel := range req.Select {
		for _, r := range selected(cols[sel.Kind], sel) {
			// Selectors may overlap.
			if seen[r] {
				continue
			}
			seen[r] = true
			if rec, ok := r.record(sel.Kind, r.at(clock), req.Guards, req.KeysOnly); ok {
				recs = append(recs, rec)
				if size += len(rec.Doc); req.Bytes > 0 && size > req.Bytes {
					return nil, fmt.Errorf("read %d bytes: %w", size, record.ErrTooLarge)
				}
			}
		}
	}
	return recs, nil
}

func selected(col *collection, sel record.Selector) []*row {
	if sel.Prefix {
		// Only string names can have a prefix.
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
