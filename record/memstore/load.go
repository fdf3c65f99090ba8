package memstore

import (
	"context"
	"errors"

	"dbcontroller.dev/record"
)

// Load inserts documents one by one. The lock is let go between them, so that nobody comes to
// rely on a group being loaded whole.
func (s *Store) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results := make([]record.Result, len(b.Groups))
	for i, g := range b.Groups {
		results[i].Outcome = record.Applied
		for _, w := range g.Writes {
			one := record.GroupWrite{Group: g.Group, Version: g.Version, Writes: []record.Write{w}}
			res, err := s.eachGroup(ctx, record.Batch{Tokens: b.Tokens, Epoch: b.Epoch, Groups: []record.GroupWrite{one}}, loadRecord)
			if err != nil {
				return nil, err
			}
			if errors.Is(res[0].Err, record.ErrFenced) {
				return nil, res[0].Err
			}
			if r := res[0]; r.Outcome == record.Refused || r.Outcome == record.Changed && results[i].Outcome == record.Applied {
				results[i] = r
			}
		}
	}
	return results, nil
}

func loadRecord(t *txn, cols map[string]*collection, g record.GroupWrite, guard record.Guard) record.Result {
	w := g.Writes[0]
	c := cols[w.Kind]
	if w.Doc == nil {
		return record.Result{Outcome: record.Applied}
	}
	if c.mark != "" {
		return record.Result{Outcome: record.Refused, Err: record.ErrFenced}
	}
	at := t.get(c, w.Key)
	if at.doc != nil || !c.fixed && !at.absent() {
		return record.Result{Outcome: record.Changed}
	}
	if c.fixed {
		guard = at.guard
	}
	t.set(c, w.Key, state{doc: w.Doc, guard: guard})
	return commitGroup(t)
}
