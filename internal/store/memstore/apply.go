package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

// Apply writes each group if all stored guards are lower. If a unique index refuses several groups,
// it tries them together, since they may exchange their values.
func (s *Store) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results, err := s.eachGroup(ctx, b, func(t *txn, cols map[string]*collection, g record.GroupWrite, guard record.Guard) record.Result {
		if err := ended(cols, b.Tokens); err != nil {
			return record.Result{Outcome: record.Refused, Err: err}
		}
		if res := joinGroup(t, cols, g, guard, b.Repair); res.Outcome != record.Applied {
			return res
		}
		res := commitGroup(t)
		res.Err = held(b.Tokens, res.Err)
		return res
	})
	if err != nil {
		return nil, err
	}
	// Another group of the batch may be giving up the conflicting value.
	var refused []int
	for i, r := range results {
		if errors.Is(r.Err, record.ErrConflict) {
			refused = append(refused, i)
		}
	}
	return results, s.together(ctx, b, refused, results)
}

// held adds the record with the conflicting unique value to the error, if it is known.
func held(toks record.Tokens, err error) error {
	var c *conflict
	if !errors.As(err, &c) || c.holder == "" {
		return err
	}
	for kind, tok := range toks {
		// The conflict has the collection's name, and callers need the kind.
		if tok.Name == c.in {
			return &record.HeldError{Kind: kind, Holder: c.holder, Err: err}
		}
	}
	return err
}

// together commits as many of the groups as possible in one transaction.
func (s *Store) together(ctx context.Context, b record.Batch, groups []int, results []record.Result) error {
	if len(groups) < 2 {
		return nil
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	// Each round drops a group, so the loop ends.
	for len(groups) > 1 {
		t := s.newTxn()
		var joined []int
		for _, i := range groups {
			res, err := s.group(b, b.Groups[i], func(_ *txn, cols map[string]*collection, g record.GroupWrite, guard record.Guard) record.Result {
				if err := ended(cols, b.Tokens); err != nil {
					return record.Result{Outcome: record.Refused, Err: err}
				}
				return joinGroup(t, cols, g, guard, b.Repair)
			})
			if errors.Is(res.Err, errEnded) {
				err = res.Err
			}
			if err != nil {
				return fmt.Errorf("group %s: %w", b.Groups[i].Group, err)
			}
			// A group may have become stale since its refusal.
			if res.Outcome == record.Applied {
				joined = append(joined, i)
			} else {
				results[i] = res
			}
		}
		err := t.commit(true)
		var c *conflict
		if err == nil {
			for _, i := range joined {
				results[i] = record.Result{Outcome: record.Applied}
			}
			return nil
		}
		if !errors.As(err, &c) {
			return nil // all groups stay refused
		}
		// Drop the group with the conflicting record, and try the others again.
		groups = slices.DeleteFunc(joined, func(i int) bool {
			return slices.ContainsFunc(b.Groups[i].Writes, func(w record.Write) bool { return w.Key == c.key })
		})
	}
	return nil
}

// eachGroup runs one transaction for each group. It releases the lock in between, so that no caller
// can rely on an atomic batch.
func (s *Store) eachGroup(ctx context.Context, b record.Batch, do func(*txn, map[string]*collection, record.GroupWrite, record.Guard) record.Result) ([]record.Result, error) {
	results := make([]record.Result, 0, len(b.Groups))
	for _, g := range b.Groups {
		if err := s.begin(ctx); err != nil {
			return nil, err
		}
		res, err := s.group(b, g, do)
		s.cluster.mu.Unlock()
		// A missing label or an ended token concerns the writer and not this group, so the whole call
		// fails.
		if errors.Is(res.Err, record.ErrLabel) || errors.Is(res.Err, errEnded) {
			err = res.Err
		}
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
	// Check all tokens of the group before its first write.
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
		if err := checkDoc(b.Tokens[w.Kind], w.Key, w.Doc); err != nil {
			return record.Result{Outcome: record.Refused, Err: fmt.Errorf("%s %s: %w", w.Kind, w.Key, err)}, nil
		}
	}
	return do(s.newTxn(), cols, g, record.Guard{Epoch: b.Epoch, Version: g.Version}), nil
}

// errEnded reports that the fence of a token has ended. An applier then reads again.
var errEnded = fmt.Errorf("the fence of the token has ended: %w", record.ErrFenced)

// ended returns errEnded if the fence of a token has ended.
func ended(cols map[string]*collection, toks record.Tokens) error {
	for kind, col := range cols {
		if col.ended[toks[kind].Mark] {
			return errEnded
		}
	}
	return nil
}

// joinGroup adds a group to a transaction, unless its guards forbid it.
func joinGroup(t *txn, cols map[string]*collection, g record.GroupWrite, guard record.Guard, repair bool) record.Result {
	// Check all guards before Expect: a stale group is Stale even if an Expect also fails.
	for _, w := range g.Writes {
		if have := t.get(cols[w.Kind], w.Key).guard; !have.Older(guard, repair) {
			return record.Result{Outcome: record.Stale}
		}
	}
	for _, w := range g.Writes {
		if w.Expect != nil && t.get(cols[w.Kind], w.Key).guard != *w.Expect {
			return record.Result{Outcome: record.Changed}
		}
	}
	// Streams of Follow report these changes as an Apply's.
	t.applies = true
	for _, w := range g.Writes {
		t.set(cols[w.Kind], w.Key, state{doc: w.Doc, guard: guard})
	}
	return record.Result{Outcome: record.Applied}
}

func commitGroup(t *txn) record.Result {
	if err := t.commit(true); err != nil {
		return record.Result{Outcome: record.Refused, Err: err}
	}
	return record.Result{Outcome: record.Applied}
}
