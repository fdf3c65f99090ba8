package memstore

import (
	"context"

	"dbcontroller/record"
)

// Load inserts groups of which nothing is there, and answers Changed for the others:
// the caller applies those the full way.
func (s *Store) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return s.eachGroup(ctx, b, loadGroup)
}

func loadGroup(t *txn, cols map[string]*collection, g record.GroupWrite, guard record.Guard) record.Result {
	for _, w := range g.Writes {
		if !t.get(cols[w.Kind], w.Key).absent() || w.Expect != nil && !w.Expect.IsZero() {
			return record.Result{Outcome: record.Changed}
		}
	}
	for _, w := range g.Writes {
		t.set(cols[w.Kind], w.Key, state{doc: w.Doc, guard: guard})
	}
	return commitGroup(t)
}
