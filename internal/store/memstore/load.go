package memstore

import (
	"context"
	"errors"

	"dbcontroller.dev/record"
)

// Load inserts documents one by one. It releases the lock between them, so that no caller can rely
// on a group being loaded as a whole.
func (s *Store) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results := make([]record.Result, len(b.Groups))
	for i, g := range b.Groups {
		results[i].Outcome = record.Applied
		for _, w := range g.Writes {
			// Each document is a group of its own, so a failure leaves the others in place.
			one := record.GroupWrite{Group: g.Group, Version: g.Version, Writes: []record.Write{w}}
			res, err := s.eachGroup(ctx, record.Batch{Tokens: b.Tokens, Epoch: b.Epoch, Groups: []record.GroupWrite{one}}, loadRecord)
			if err != nil {
				return nil, err
			}
			// eachGroup reports a fence as a Refused group. For Load it must fail the whole call,
			// since the caller may not go on with this token.
			if errors.Is(res[0].Err, record.ErrFenced) {
				return nil, res[0].Err
			}
			// A refusal outweighs Changed: applying the group would be refused as well.
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
	// A validator fence must stop late loads, although Apply passes it.
	if c.mark != "" {
		return record.Result{Outcome: record.Refused, Err: record.ErrFenced}
	}
	at := t.get(c, w.Key)
	// A tombstone of a fixed-name kind is no record for Load. A managed kind's tombstone is.
	if at.doc != nil || !c.fixed && !at.absent() {
		return record.Result{Outcome: record.Changed}
	}
	// Load writes no guards for fixed-name kinds.
	if c.fixed {
		guard = at.guard
	}
	t.set(c, w.Key, state{doc: w.Doc, guard: guard})
	return commitGroup(t)
}
