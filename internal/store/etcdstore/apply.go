package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// attempt is the part of a transaction for one group, or for another unit that is written as a
// whole.
type attempt struct {
	gates gates
	cmps  []clientv3.Cmp
	ops   []clientv3.Op
	keys  []string
	size  int
	// failed is the reason why the attempt cannot be made.
	failed error
}

func (a *attempt) compare(key string, mod int64) { a.cmps = append(a.cmps, unchanged(key, mod)) }

func (a *attempt) put(key, value string) {
	a.ops = append(a.ops, clientv3.OpPut(key, value))
	a.keys = append(a.keys, key)
	a.size += 2*len(key) + len(value) + overhead // counted twice, because the transaction also compares the key
}

// conditions returns the number of comparisons.
func (a *attempt) conditions() int { return len(a.gates) + len(a.cmps) }

// join adds another attempt to this one.
func (a *attempt) join(b attempt) {
	if a.gates == nil {
		a.gates = gates{}
	}
	maps.Copy(a.gates, b.gates)
	a.failed = errors.Join(a.failed, b.failed)
	a.cmps, a.ops, a.keys, a.size = append(a.cmps, b.cmps...), append(a.ops, b.ops...), append(a.keys, b.keys...), a.size+b.size
}

// fitting returns an error if an attempt exceeds the limits of one transaction.
func (s *Store) fitting(a attempt) error {
	if a.failed != nil {
		return a.failed
	}
	return s.fits(len(a.ops), len(a.gates), a.size+s.weight(a.gates, nil))
}

// fits returns an error if something exceeds the limits of one transaction.
func (s *Store) fits(records, kinds, bytes int) error {
	if records+kinds > s.most {
		return fmt.Errorf("%w: it has %d records of %d kinds (a record of an application counts twice, because of its guard), but etcd accepts %d of both in a transaction: raise its --max-txn-ops, and etcd.maxTxnOps in the configuration", record.ErrOversize, records, kinds, s.most)
	}
	if bytes > s.bytes {
		return fmt.Errorf("%w: it has %d bytes, but etcd accepts %d in a transaction: raise its --max-request-bytes, and etcd.maxRequestBytes in the configuration", record.ErrOversize, bytes, s.bytes)
	}
	return nil
}

// together writes n units, with as many as possible in each transaction. try returns the attempt
// for a unit, based on keys read at the beginning. It returns false for a unit that needs no write.
// alone writes one unit by itself and reads its keys anew. Units with a common key go into
// different transactions. If etcd accepts less than the configuration states, a unit that is still
// too large is Refused in results.
func (s *Store) together(ctx context.Context, what string, results []record.Result, try func(i int) (attempt, bool), alone func(i int) error) error {
	var pack attempt
	var parts []part
	taken := map[string]bool{}
	flush := func() error {
		err := s.send(ctx, what, pack, parts, func(i int) error {
			err := alone(i)
			if errors.Is(err, errTooLarge) {
				// This unit alone is too large for etcd, so a retry cannot help.
				results[i], err = record.Result{Outcome: record.Refused, Err: err}, nil
			}
			return err
		})
		pack, parts = attempt{}, parts[:0]
		clear(taken)
		return err
	}
	for i := range results {
		a, wants := try(i)
		if !wants {
			continue
		}
		// Gates that the pack has already are compared only once.
		size := pack.size + a.size + s.weight(pack.gates, nil) + s.weight(a.gates, pack.gates)
		full := pack.conditions()+a.conditions() > s.most || len(pack.ops)+len(a.ops) > s.most || size > s.bytes
		// etcd refuses a transaction that writes one key twice.
		if len(parts) > 0 && full || slices.ContainsFunc(a.keys, func(key string) bool { return taken[key] }) {
			if err := flush(); err != nil {
				return err
			}
		}
		pack.join(a)
		for _, key := range a.keys {
			taken[key] = true
		}
		parts = append(parts, part{i, a})
	}
	if len(parts) == 0 {
		return nil
	}
	return flush()
}

// part is one of several units in a transaction.
type part struct {
	i int
	attempt
}

// send commits a transaction. If one part is behind, it writes each part alone. If etcd refuses the
// transaction for its size, it sends two halves.
func (s *Store) send(ctx context.Context, what string, pack attempt, parts []part, alone func(i int) error) error {
	err := s.commit(ctx, what, pack)
	if errors.Is(err, errTooLarge) && len(parts) > 1 {
		// Halving finds the parts that are too large without refusing the others.
		for half := range slices.Chunk(parts, (len(parts)+1)/2) {
			var pack attempt
			for _, p := range half {
				pack.join(p.attempt)
			}
			if err := s.send(ctx, what, pack, half, alone); err != nil {
				return err
			}
		}
		return nil
	}
	if !errors.Is(err, errBehind) && !errors.Is(err, errTooLarge) {
		return err
	}
	// One changed key fails the whole pack, so write its parts one by one.
	for _, p := range parts {
		if err := alone(p.i); err != nil {
			return err
		}
	}
	return nil
}

// Apply writes each group if all stored guards are lower.
func (s *Store) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results := make([]record.Result, len(b.Groups))
	g, keys, err := s.admit(b, results)
	if err != nil {
		return nil, err
	}
	// One read serves the whole batch. A group that changes meanwhile is retried alone.
	have, err := s.states(ctx, g, keys)
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	// Read again on each try: another writer has changed a guard since.
	alone := func(i int) error {
		for {
			keys := keysOf(s.slots(b, b.Groups[i]))
			have, err := s.states(ctx, g, keys)
			if err != nil {
				return err
			}
			a, result := s.join(b, b.Groups[i], have)
			if result.Outcome == record.Applied {
				err = s.commit(ctx, "apply", a)
			}
			if err == nil {
				results[i] = result
			}
			if !errors.Is(err, errBehind) {
				return err
			}
		}
	}
	err = s.together(ctx, "apply", results, func(i int) (attempt, bool) {
		if results[i].Outcome == record.Refused {
			return attempt{}, false
		}
		a, result := s.join(b, b.Groups[i], have)
		results[i] = result
		return a, result.Outcome == record.Applied
	}, alone)
	if err != nil {
		return nil, err
	}
	return results, nil
}

// admit refuses groups that cannot be stored. It returns the gates and keys of the other groups.
func (s *Store) admit(b record.Batch, results []record.Result) (gates, []string, error) {
	g, err := gatesOf(b.Tokens, func(yield func(string) bool) {
		for _, group := range b.Groups {
			for _, w := range group.Writes {
				if !yield(w.Kind) {
					return
				}
			}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	var keys []string
	for i, group := range b.Groups {
		// A wrong anchor is a fault of the caller, not of the group.
		if group.Anchor < 0 || group.Anchor >= len(group.Writes) {
			return nil, nil, fmt.Errorf("group %s: anchor %d of %d writes", group.Group, group.Anchor, len(group.Writes))
		}
		// One bad document refuses its group only.
		var refusal error
		for _, w := range group.Writes {
			if err := s.checkDoc(b.Tokens[w.Kind], w.Key, w.Doc); err != nil {
				refusal = fmt.Errorf("%s %s: %w", w.Kind, w.Key, err)
				break
			}
		}
		if refusal != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: refusal}
			continue
		}
		keys = append(keys, keysOf(s.slots(b, group))...)
	}
	return g, keys, nil
}

func (s *Store) slots(b record.Batch, g record.GroupWrite) []slot {
	slots := make([]slot, len(g.Writes))
	for i, w := range g.Writes {
		slots[i] = s.slot(b.Tokens[w.Kind], w.Key)
	}
	return slots
}

func keysOf(slots []slot) (keys []string) {
	for _, l := range slots {
		keys = append(keys, l.reads()...)
	}
	return keys
}

// join returns the attempt for a group, unless its guards forbid it or it exceeds the limits.
func (s *Store) join(b record.Batch, g record.GroupWrite, have map[string]state) (attempt, record.Result) {
	guard := record.Guard{Epoch: b.Epoch, Version: g.Version}
	// Check all guards before Expect, so that a stale group is Stale.
	for _, l := range s.slots(b, g) {
		if !l.held(have).guard.Older(guard, b.Repair) {
			return attempt{}, record.Result{Outcome: record.Stale}
		}
	}
	a, expected := s.guards(b, g, have)
	if !expected {
		return attempt{}, record.Result{Outcome: record.Changed}
	}
	if err := s.fitting(a); err != nil {
		return attempt{}, record.Result{Outcome: record.Refused, Err: err}
	}
	return a, record.Result{Outcome: record.Applied}
}

// guards returns an attempt that writes all records of a group with their guards. expected is false
// if a record has another guard than the group expects.
func (s *Store) guards(b record.Batch, g record.GroupWrite, have map[string]state) (a attempt, expected bool) {
	a.gates = gates{}
	slots := s.slots(b, g)
	for i, w := range g.Writes {
		a.gates[b.Tokens[w.Kind].ID] = b.Tokens[w.Kind]
		st := slots[i].held(have)
		if w.Expect != nil && st.guard != *w.Expect {
			return attempt{}, false
		}
		// The write must fail if the guard changes before the commit.
		a.guarded(slots[i], st)
		a.store(slots[i], envelope{guard: record.Guard{Epoch: b.Epoch, Version: g.Version}, doc: w.Doc})
	}
	return a, true
}

// Load inserts absent records. A transaction holds many groups. If one of its records exists
// already, Load tries each record alone.
func (s *Store) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results := make([]record.Result, len(b.Groups))
	g, _, err := s.admit(b, results)
	if err != nil {
		return nil, err
	}
	if _, err := s.states(ctx, g, nil); err != nil {
		return nil, fmt.Errorf("load: %w", err) // check the gates, even if there is nothing to insert
	}
	insert := func(group record.GroupWrite, only int) attempt {
		guard := record.Guard{Epoch: b.Epoch, Version: group.Version}
		a := attempt{gates: gates{}}
		for i, w := range group.Writes {
			if w.Doc == nil || only >= 0 && i != only {
				continue
			}
			l := s.slot(b.Tokens[w.Kind], w.Key)
			a.gates[b.Tokens[w.Kind].ID] = b.Tokens[w.Kind]
			// Load must not overwrite. A managed kind's tombstone has this key, too.
			a.cmps = append(a.cmps, absent(l.doc))
			e := envelope{doc: w.Doc}
			// A fixed-name record has its guard in another key, and Load writes no guards there.
			if l.in == nil {
				e.guard = guard
			}
			a.store(l, e)
		}
		return a
	}
	alone := func(i int) error {
		for j, w := range b.Groups[i].Writes {
			if w.Doc == nil {
				continue
			}
			a := insert(b.Groups[i], j)
			switch err := s.commit(ctx, "load", a); {
			// The record exists, so leave it to Apply.
			case errors.Is(err, errBehind):
				results[i].Outcome = record.Changed
			case err != nil:
				return err
			}
		}
		return nil
	}
	err = s.together(ctx, "load", results, func(i int) (attempt, bool) {
		if results[i].Outcome == record.Refused {
			return attempt{}, false
		}
		a := insert(b.Groups[i], -1)
		whole := a
		if slices.ContainsFunc(s.slots(b, b.Groups[i]), func(l slot) bool { return l.in != nil }) {
			// The first change of an application's record also writes its guard. Refuse the group
			// now if that would exceed a transaction, since it would be parked then.
			whole, _ = s.guards(b, b.Groups[i], nil)
		}
		if err := s.fitting(whole); err != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: err}
			return a, false
		}
		results[i].Outcome = record.Applied
		return a, len(a.ops) > 0
	}, alone)
	if err != nil {
		return nil, err
	}
	return results, nil
}
