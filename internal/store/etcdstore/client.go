package etcdstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// Write makes all mutations or none. The transaction compares all keys that its conditions depend
// on, so it is serializable.
func (s *Store) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	g, err := gatesOf(toks, func(yield func(string) bool) {
		for _, m := range ms {
			if !yield(m.Kind) {
				return
			}
		}
	})
	if err != nil || len(ms) == 0 {
		return err
	}
	if err := s.refuseClient(slices.Collect(maps.Values(g))...); err != nil {
		return err
	}
	size := 0
	for _, m := range ms {
		if err := s.checkDoc(toks[m.Kind], m.Key, m.Doc); err != nil {
			return fmt.Errorf("write %s %s: %w", m.Kind, m.Key, record.Refuse(err))
		}
		size += s.slot(toks[m.Kind], m.Key).weight(len(m.Doc))
	}
	// Refuse here, with the remedy. etcd's own error does not name it.
	if err := s.fits(len(ms), len(g), size+s.weight(g, nil)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for {
		// Another writer changed a record in between: read and decide again.
		err := s.writeOnce(ctx, g, toks, ms, nil)
		if !errors.Is(err, errBehind) {
			return err
		}
	}
}

// change is a client's transaction under construction.
type change struct {
	have   map[string]state // as read
	now    map[string]state // after the mutations so far
	order  []string         // keys that change
	decide map[string]bool  // keys that a condition depends on
	extra  []clientv3.Op    // operations besides those on records
	cmps   []clientv3.Cmp   // comparisons besides those of records
}

// writeOnce reads the keys that the mutations depend on, and makes the mutations if none has
// changed.
func (s *Store) writeOnce(ctx context.Context, g gates, toks record.Tokens, ms []record.Mutation, more func(*change) error) error {
	var keys []string
	for _, m := range ms {
		if decides(m) {
			keys = append(keys, s.at.record(toks[m.Kind].ID, m.Key))
		}
	}
	have, err := s.states(ctx, g, keys)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	c := &change{have: have, now: map[string]state{}, decide: map[string]bool{}}
	for _, m := range ms {
		if err := c.mutate(s.at.record(toks[m.Kind].ID, m.Key), m); err != nil {
			return fmt.Errorf("write %s %s: %w", m.Kind, m.Key, err)
		}
	}
	if more != nil {
		if err := more(c); err != nil {
			return err
		}
	}
	cmps, ops := c.cmps, c.extra
	// The transaction must fail if a record that decided the outcome has changed.
	for key := range c.decide {
		cmps = append(cmps, unchanged(key, have[key].mod))
	}
	// Unconditional writes compare nothing, so they never conflict.
	for _, key := range c.order {
		if st := c.now[key]; st.live() {
			ops = append(ops, clientv3.OpPut(key, envelope{doc: st.doc}.bytes()))
		} else {
			ops = append(ops, clientv3.OpDelete(key))
		}
	}
	return s.commit(ctx, "write", attempt{gates: g, cmps: cmps, ops: ops})
}

// decides reports whether the effect of a mutation depends on the present record. A delete does,
// because it must keep a tombstone.
func decides(m record.Mutation) bool {
	return m.Absent || m.Exists || m.Match != nil || m.Doc == nil
}

func (c *change) mutate(key string, m record.Mutation) error {
	// A later mutation sees the result of an earlier one on the same key.
	st, changed := c.now[key]
	if !changed {
		st = c.have[key]
	}
	if decides(m) {
		c.decide[key] = true
	}
	switch {
	case m.Absent && st.live():
		return record.ErrExists
	case (m.Exists || m.Match != nil) && !st.live():
		return record.ErrNotFound
	case m.Match != nil && !m.Match.Holds(st.doc):
		return record.ErrMismatch
	case m.Doc == nil && !st.live():
		return nil // nothing to delete; keep a tombstone with its guard
	case m.Match != nil && !changed && bytes.Equal(m.Doc, st.doc):
		return nil // a check: the comparison of the key is enough
	}
	if !changed {
		c.order = append(c.order, key)
	}
	// A client's write removes the guard, so that any write of the next direction is newer.
	c.now[key] = state{envelope: envelope{doc: m.Doc}}
	return nil
}

// perOnce is the number of operations of CreateOnce for each kind, besides those for records.
const perOnce = 2

// MostOnce returns the maximum number of records for CreateOnce. operations is etcd's limit for a
// transaction (0: its default), and kinds the number of kinds in the namespace.
func MostOnce(operations, kinds int) int {
	return max(0, cmp.Or(operations, defaultOperations)-labelConditions-(perOnce+1)*kinds)
}

// CreateOnce creates records together with a marker, which it stores with each collection. The
// maximum number of records is MostOnce.
func (s *Store) CreateOnce(ctx context.Context, toks record.Tokens, marker string, records []record.Record) (made bool, err error) {
	var ms []record.Mutation
	size := 0
	for _, r := range records {
		if r.Doc == nil {
			return false, fmt.Errorf("%s %s: no document to create", r.Kind, r.Key)
		}
		if err := s.checkDoc(toks[r.Kind], r.Key, r.Doc); err != nil {
			return false, fmt.Errorf("create %s %s: %w", r.Kind, r.Key, record.Refuse(err))
		}
		size += s.slot(toks[r.Kind], r.Key).weight(len(r.Doc))
		// Another process may create the record in between, and that one must stay.
		ms = append(ms, record.Mutation{Kind: r.Kind, Key: r.Key, Doc: r.Doc, Absent: true})
	}
	g, err := gatesOf(toks, func(yield func(string) bool) {
		for _, m := range ms {
			if !yield(m.Kind) {
				return
			}
		}
	})
	if err != nil {
		return false, err
	}
	size += 2 * s.weight(g, nil) // the markers also need comparisons of the gates
	for _, tok := range toks {
		size += 2*len(s.at.once(tok.ID)+marker) + overhead
	}
	if err := s.fits(len(records)+perOnce*len(toks), len(toks), size); err != nil {
		return false, fmt.Errorf("create: %w", err)
	}
	for {
		made, err := s.createOnce(ctx, g, toks, marker, ms)
		if !errors.Is(err, errBehind) {
			return made, err
		}
	}
}

func (s *Store) createOnce(ctx context.Context, g gates, toks record.Tokens, marker string, ms []record.Mutation) (bool, error) {
	var mark change
	for _, tok := range toks {
		gate, _, err := s.get(ctx, "create", s.at.gate(tok.ID))
		if err != nil {
			return false, err
		}
		// A collection that is gone needs no marker, and a fixed-name kind gets none.
		if gate == nil || tok.Fixed {
			continue
		}
		key := s.at.once(tok.ID) + marker
		there, _, err := s.get(ctx, "create", key)
		if err != nil {
			return false, err
		}
		if there != nil {
			// The work is done, but a stale token must still be an error.
			_, err := s.states(ctx, g, nil)
			return false, err
		}
		// Of concurrent calls only one may create, so the marker must still be absent.
		mark.cmps = append(mark.cmps, absent(key), clientv3.Compare(clientv3.CreateRevision(s.at.gate(tok.ID)), ">", 0))
		mark.extra = append(mark.extra, clientv3.OpPut(key, "made"))
	}
	keys := make([]string, len(ms))
	for i, m := range ms {
		keys[i] = s.at.record(toks[m.Kind].ID, m.Key)
	}
	have, err := s.states(ctx, g, keys)
	if err != nil {
		return false, fmt.Errorf("create: %w", err)
	}
	var missing []record.Mutation
	for i, m := range ms {
		if have[keys[i]].live() {
			// Compare existing records too: if one is deleted meanwhile, it must be created.
			mark.cmps = append(mark.cmps, unchanged(keys[i], have[keys[i]].mod))
			continue
		}
		missing = append(missing, m)
	}
	err = s.writeOnce(ctx, g, toks, missing, func(c *change) error {
		c.cmps, c.extra = mark.cmps, mark.extra
		return nil
	})
	// A record appeared since the read. Read again instead of failing.
	if errors.Is(err, record.ErrExists) {
		return false, errBehind
	}
	return err == nil, err
}

// Swap replaces each record that still equals Was.
func (s *Store) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	g, err := gateOf(tok)
	if err != nil {
		return nil, err
	}
	slots := make([]slot, len(swaps))
	for i, w := range swaps {
		slots[i] = s.slot(tok, w.Key)
	}
	have, err := s.states(ctx, g, keysOf(slots))
	if err != nil {
		return nil, fmt.Errorf("swap: %w", err)
	}
	results := make([]record.Result, len(swaps))
	try := func(i int, st state) (a attempt, wants bool) {
		w := swaps[i]
		if !st.live() || !bytes.Equal(st.doc, w.Was) {
			results[i] = record.Result{Outcome: record.Changed}
			return a, false
		}
		// An unreadable record has no document that could be compared.
		if err := errors.Join(st.err, record.CheckReserved(tok, w.Doc), record.CheckSwap(w)); err != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: err}
			return a, false
		}
		if err := s.checkDoc(tok, w.Key, w.Doc); err != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: err}
			return a, false
		}
		results[i] = record.Result{Outcome: record.Applied}
		a.gates = g
		// The revision stands for the bytes that were compared.
		a.compare(slots[i].doc, st.mod)
		a.store(slots[i], envelope{doc: w.Doc})
		return a, true
	}
	alone := func(i int) error {
		for {
			have, err := s.states(ctx, g, slots[i].reads())
			if err != nil {
				return err
			}
			a, wants := try(i, slots[i].held(have))
			if !wants {
				return nil
			}
			if err := s.commit(ctx, "swap", a); !errors.Is(err, errBehind) {
				return err
			}
		}
	}
	err = s.together(ctx, "swap", results, func(i int) (attempt, bool) { return try(i, slots[i].held(have)) }, alone)
	if err != nil {
		return nil, err
	}
	return results, nil
}
