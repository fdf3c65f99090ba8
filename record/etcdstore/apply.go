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

// attempt is what a group, or another thing that is written whole, wants of a transaction.
type attempt struct {
	gates gates
	cmps  []clientv3.Cmp
	ops   []clientv3.Op
	keys  []string
	size  int
}

func (a *attempt) compare(key string, mod int64) { a.cmps = append(a.cmps, unchanged(key, mod)) }

func (a *attempt) put(key, value string) {
	a.ops = append(a.ops, clientv3.OpPut(key, value))
	a.keys = append(a.keys, key)
	a.size += len(key) + len(value) + overhead
}

// conditions is how many comparisons it needs.
func (a *attempt) conditions() int { return len(a.gates) + len(a.cmps) }

// join makes another attempt part of this one.
func (a *attempt) join(b attempt) {
	if a.gates == nil {
		a.gates = gates{}
	}
	maps.Copy(a.gates, b.gates)
	a.cmps, a.ops, a.keys, a.size = append(a.cmps, b.cmps...), append(a.ops, b.ops...), append(a.keys, b.keys...), a.size+b.size
}

// fits reports why something is more than one transaction may be; nil: it is not.
func (s *Store) fits(records, kinds, bytes int) error {
	if records+kinds > s.most {
		return fmt.Errorf("it has %d records of %d kinds, and etcd takes %d of both in a transaction: raise its --max-txn-ops, and the limit in the configuration", records, kinds, s.most)
	}
	if bytes > s.bytes {
		return fmt.Errorf("it has %d bytes, and etcd takes %d in a transaction: raise its --max-request-bytes, and the limit in the configuration", bytes, s.bytes)
	}
	return nil
}

// together writes n things, as many in a transaction as it takes. try makes what the thing
// wants of what its keys held at the beginning, or nothing where it is done without; alone
// writes one by itself, reading anew. Things that share a key are not in one transaction.
func (s *Store) together(ctx context.Context, what string, n int, try func(i int) (attempt, bool), alone func(i int) error) error {
	var pack attempt
	var in []int
	taken := map[string]bool{}
	flush := func() error {
		err := s.commit(ctx, what, pack)
		if errors.Is(err, errBehind) {
			err = nil
			for _, i := range in {
				if err = alone(i); err != nil {
					break
				}
			}
		}
		pack, in = attempt{}, in[:0]
		clear(taken)
		return err
	}
	for i := range n {
		a, wants := try(i)
		if !wants {
			continue
		}
		full := pack.conditions()+a.conditions() > s.most || len(pack.ops)+len(a.ops) > s.most || pack.size+a.size > s.bytes
		if full || slices.ContainsFunc(a.keys, func(key string) bool { return taken[key] }) {
			if err := flush(); err != nil {
				return err
			}
		}
		pack.join(a)
		for _, key := range a.keys {
			taken[key] = true
		}
		in = append(in, i)
	}
	if len(in) == 0 {
		return nil
	}
	return flush()
}

// Apply writes each group whose guards are all lower.
func (s *Store) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results := make([]record.Result, len(b.Groups))
	g, keys, err := s.admit(b, results)
	if err != nil {
		return nil, err
	}
	have, err := s.states(ctx, g, keys)
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	alone := func(i int) error {
		for {
			keys := s.keysOf(b, b.Groups[i])
			have, err := s.states(ctx, g, keys)
			if err != nil {
				return err
			}
			a, outcome := s.join(b, b.Groups[i], have)
			if outcome == record.Applied {
				err = s.commit(ctx, "apply", a)
			}
			if err == nil {
				results[i].Outcome = outcome
			}
			if !errors.Is(err, errBehind) {
				return err
			}
		}
	}
	err = s.together(ctx, "apply", len(b.Groups), func(i int) (attempt, bool) {
		if results[i].Outcome == record.Refused {
			return attempt{}, false
		}
		a, outcome := s.join(b, b.Groups[i], have)
		results[i].Outcome = outcome
		return a, outcome == record.Applied
	}, alone)
	if err != nil {
		return nil, err
	}
	return results, nil
}

// admit refuses what cannot be stored, and returns gates and keys of the whole batch.
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
		if group.Anchor < 0 || group.Anchor >= len(group.Writes) {
			return nil, nil, fmt.Errorf("group %s: anchor %d of %d writes", group.Group, group.Anchor, len(group.Writes))
		}
		size, kinds := 0, map[string]bool{}
		var refusal error
		for _, w := range group.Writes {
			if err := s.checkDoc(b.Tokens[w.Kind], w.Key, w.Doc); err != nil {
				refusal = fmt.Errorf("%s %s: %w", w.Kind, w.Key, err)
				break
			}
			size += len(w.Doc) + 2*len(w.Key) + overhead
			kinds[w.Kind] = true
		}
		if refusal == nil {
			refusal = s.fits(len(group.Writes), len(kinds), size)
		}
		if refusal != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: refusal}
			continue
		}
		keys = append(keys, s.keysOf(b, group)...)
	}
	return g, keys, nil
}

func (s *Store) keysOf(b record.Batch, g record.GroupWrite) []string {
	keys := make([]string, len(g.Writes))
	for i, w := range g.Writes {
		keys[i] = s.at.record(b.Tokens[w.Kind].ID, w.Key)
	}
	return keys
}

// join makes a group's part of a transaction unless its guards forbid it.
func (s *Store) join(b record.Batch, g record.GroupWrite, have map[string]state) (attempt, record.Outcome) {
	guard := record.Guard{Epoch: b.Epoch, Version: g.Version}
	keys := s.keysOf(b, g)
	for _, key := range keys {
		if !have[key].guard.Older(guard, b.Repair) {
			return attempt{}, record.Stale
		}
	}
	a := attempt{gates: gates{}}
	for i, w := range g.Writes {
		a.gates[b.Tokens[w.Kind].ID] = b.Tokens[w.Kind]
		if w.Expect != nil && have[keys[i]].guard != *w.Expect {
			return attempt{}, record.Changed
		}
		a.compare(keys[i], have[keys[i]].mod)
		a.put(keys[i], envelope{guard: guard, doc: w.Doc}.bytes())
	}
	return a, record.Applied
}

// Load inserts what is absent. A transaction has many groups; where something of it is there,
// each of its records is tried by itself.
func (s *Store) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	results := make([]record.Result, len(b.Groups))
	g, _, err := s.admit(b, results)
	if err != nil {
		return nil, err
	}
	if _, err := s.states(ctx, g, nil); err != nil {
		return nil, fmt.Errorf("load: %w", err) // also if there is nothing to insert
	}
	insert := func(group record.GroupWrite, only int) attempt {
		guard := record.Guard{Epoch: b.Epoch, Version: group.Version}
		a := attempt{gates: gates{}}
		for i, w := range group.Writes {
			if w.Doc == nil || only >= 0 && i != only {
				continue
			}
			key := s.at.record(b.Tokens[w.Kind].ID, w.Key)
			a.gates[b.Tokens[w.Kind].ID] = b.Tokens[w.Kind]
			a.cmps = append(a.cmps, absent(key))
			a.put(key, envelope{guard: guard, doc: w.Doc}.bytes())
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
			case errors.Is(err, errBehind):
				results[i].Outcome = record.Changed
			case err != nil:
				return err
			}
		}
		return nil
	}
	err = s.together(ctx, "load", len(b.Groups), func(i int) (attempt, bool) {
		if results[i].Outcome == record.Refused {
			return attempt{}, false
		}
		results[i].Outcome = record.Applied
		a := insert(b.Groups[i], -1)
		return a, len(a.ops) > 0
	}, alone)
	if err != nil {
		return nil, err
	}
	return results, nil
}
