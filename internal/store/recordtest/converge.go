package recordtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"dbcontroller.dev/record"
)

// These tests check the basic property of the engine. Any number of appliers apply the states of
// some groups, in any order and repeatedly. Afterwards the target holds each group's newest state.
var convergeTests = []test{
	{"outcomes like a naive model", flavours(convergeModel)},
	{"many appliers", flavours(convergeMany)},
	{"copy during changes", flavours(convergeCopy)},
}

// retries is the maximum number of retries of a batch after errors.
const retries = 100

// applyAgain retries a batch until it gets an answer. An error leaves the outcome of the groups
// unknown, and applying them again is always safe.
func applyAgain(ctx context.Context, do func(context.Context, record.Batch) ([]record.Result, error), batch record.Batch) ([]record.Result, error) {
	var err error
	for range retries {
		var res []record.Result
		res, err = do(ctx, batch)
		if err == nil {
			return res, nil
		}
		if errors.Is(err, record.ErrFenced) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("batch of %d groups: %w", len(batch.Groups), err)
}

// naive is the simplest possible model of a target.
type naive map[string]record.Record // by "<kind>/<name>"

func (m naive) apply(epoch uint64, g record.GroupWrite) record.Outcome {
	now := record.Guard{Epoch: epoch, Version: g.Version}
	for _, w := range g.Writes {
		if m[w.Kind+"/"+w.Key.String()].Guard.Compare(now) >= 0 {
			return record.Stale
		}
	}
	for _, w := range g.Writes {
		m[w.Kind+"/"+w.Key.String()] = record.Record{Doc: w.Doc, Guard: now}
	}
	return record.Applied
}

func (m naive) want(k *kind) map[string]record.Record {
	want := map[string]record.Record{}
	for place, r := range m {
		if name, ok := cutPlace(place, k); ok {
			want[name] = r
		}
	}
	return want
}

func cutPlace(place string, k *kind) (string, bool) {
	prefix := k.spec.Name + "/"
	if len(place) < len(prefix) || place[:len(prefix)] != prefix {
		return "", false
	}
	return place[len(prefix):], true
}

// convergeModel sends random batches and compares each outcome with the model.
func convergeModel(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	rnd := random(t)
	k, l := mk(t), mk(t)
	model := naive{}
	batches := 25
	for range batches {
		epoch := uint64(1 + rnd.IntN(3))
		var gs []record.GroupWrite
		used := map[string]bool{}
		for range 1 + rnd.IntN(6) {
			var ws []record.Write
			for range 1 + rnd.IntN(3) {
				target := []*kind{k, l}[rnd.IntN(2)]
				name := fmt.Sprint("r", rnd.IntN(8))
				// Use a record once in a batch, because the order of groups is undefined.
				if place := target.spec.Name + "/" + name; !used[place] {
					used[place] = true
					ws = append(ws, target.set(name, rnd.IntN(6)-1))
				}
			}
			if len(ws) > 0 {
				g := group(1+rnd.IntN(12), ws...)
				g.Anchor = rnd.IntN(len(ws))
				gs = append(gs, g)
			}
		}
		if len(gs) == 0 {
			continue
		}
		// Keep the model's state before the batch for the message.
		before := naive{}
		maps.Copy(before, model)
		var want []record.Outcome
		for _, g := range gs {
			want = append(want, model.apply(epoch, g))
		}
		first := true
		do := func(ctx context.Context, batch record.Batch) ([]record.Result, error) {
			res, err := b.Namespace.Apply(ctx, batch)
			first = first && err == nil
			return res, err
		}
		res, err := applyAgain(t.Context(), do, record.Batch{Tokens: tokens(k, l), Epoch: epoch, Groups: gs})
		if err != nil {
			t.Fatalf("apply: %v", err)
		}
		for i, r := range res {
			// If an acknowledgement was lost, the retry finds the group's own write.
			if r.Outcome != want[i] && (first || r.Outcome != record.Stale) {
				t.Errorf("epoch %d, group %+v over %v: %s (%v), want %s", epoch, gs[i], before, r.Outcome, r.Err, want[i])
			}
		}
	}
	k.wantState(t, model.want(k))
	l.wantState(t, model.want(l))
}

// states returns a random history of some groups over two kinds. As in a real transformation, each
// state writes the anchor and all other members, with some of them as tombstones.
func states(rnd *rand.Rand, k, l *kind, groups, versions int) (all []record.GroupWrite, newest naive) {
	newest = naive{}
	for g := range groups {
		name := fmt.Sprintf("g%d", g)
		for v := 1; v <= versions; v++ {
			// A third of the members are tombstones.
			n := func() int {
				if rnd.IntN(3) == 0 {
					return -1
				}
				return v
			}
			gw := group(v, k.set(name, n()), l.set(name+"/1", n()), l.set(name+"/2", n()))
			if rnd.IntN(2) == 0 {
				gw.Anchor = 0
				slices.Reverse(gw.Writes[1:])
			}
			all = append(all, gw)
			newest.apply(1, gw)
		}
	}
	return all, newest
}

// shuffled returns each state once or twice, in random order.
func shuffled(rnd *rand.Rand, all []record.GroupWrite) []record.GroupWrite {
	var out []record.GroupWrite
	for _, g := range all {
		for range 1 + rnd.IntN(2) {
			out = append(out, g)
		}
	}
	rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// batches splits a run of states into batches with at most one state of each group.
func batches(rnd *rand.Rand, toks record.Tokens, run []record.GroupWrite) []record.Batch {
	var out []record.Batch
	used := map[string]bool{}
	cut := func() {
		out = append(out, record.Batch{Tokens: toks, Epoch: 1})
		clear(used)
	}
	cut()
	for _, g := range run {
		// A group may be in a batch only once.
		if used[g.Group] || rnd.IntN(5) == 0 {
			cut()
		}
		used[g.Group] = true
		last := &out[len(out)-1]
		last.Groups = append(last.Groups, g)
	}
	return out
}

func convergeMany(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	rnd := random(t)
	k, l := mk(t), mk(t)
	all, newest := states(rnd, k, l, 6, 8)
	appliers, ctx := together(t)
	for range 4 {
		// Each applier sends all states, in its own order.
		work := batches(rnd, tokens(k, l), shuffled(rnd, all))
		appliers.Go(func() error {
			for _, batch := range work {
				res, err := applyAgain(ctx, b.Namespace.Apply, batch)
				if err != nil {
					return err
				}
				for i, r := range res {
					// No group can be refused here, so another outcome is a fault.
					if r.Outcome != record.Applied && r.Outcome != record.Stale {
						return fmt.Errorf("group %s: %s: %w", batch.Groups[i].Group, r.Outcome, r.Err)
					}
				}
			}
			return nil
		})
	}
	if err := appliers.Wait(); err != nil {
		t.Fatal(err)
	}
	k.wantState(t, newest.want(k))
	l.wantState(t, newest.want(l))
}

// convergeCopy runs Load of early states, like a copy, concurrently with Apply of all states. A
// group that Load finds changed is applied. Then the kinds are renamed, because a Load with a lost
// answer may still arrive. Last, a repair at the source's final version corrects the differences.
// No earlier request may change the result.
func convergeCopy(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	rnd := random(t)
	k, l := mk(t), mk(t)
	all, newest := states(rnd, k, l, 8, 4)
	copied := slices.DeleteFunc(slices.Clone(all), func(g record.GroupWrite) bool { return g.Version.Compare(version(2)) > 0 })
	appliers, ctx := together(t)
	for range 2 {
		work := batches(rnd, tokens(k, l), shuffled(rnd, copied))
		appliers.Go(func() error {
			for _, batch := range work {
				res, err := applyAgain(ctx, b.Namespace.Load, batch)
				if err != nil {
					return fmt.Errorf("load: %w", err)
				}
				// Like the engine, apply the groups that Load found changed.
				met := record.Batch{Tokens: batch.Tokens, Epoch: batch.Epoch}
				for i, r := range res {
					switch r.Outcome {
					case record.Applied:
					case record.Changed:
						met.Groups = append(met.Groups, batch.Groups[i])
					default:
						return fmt.Errorf("load of group %s: %s: %w", batch.Groups[i].Group, r.Outcome, r.Err)
					}
				}
				if _, err := applyAgain(ctx, b.Namespace.Apply, met); err != nil {
					return err
				}
			}
			return nil
		})
		changes := batches(rnd, tokens(k, l), shuffled(rnd, all))
		appliers.Go(func() error {
			for _, batch := range changes {
				if _, err := applyAgain(ctx, b.Namespace.Apply, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := appliers.Wait(); err != nil {
		t.Fatal(err)
	}
	// The new names stop loads that are still under way.
	for _, moved := range []*kind{k, l} {
		f := moved.announce(t)
		for err := b.Namespace.Fence(t.Context(), f); err != nil; err = b.Namespace.Fence(t.Context(), f) {
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
		moved.moved(f)
	}
	last := slices.DeleteFunc(slices.Clone(all), func(g record.GroupWrite) bool { return g.Version != version(4) })
	// Repair with the newest states, and then send all old ones again: they must change nothing.
	for _, batch := range append(batches(rnd, tokens(k, l), last), batches(rnd, tokens(k, l), shuffled(rnd, all))...) {
		batch.Repair = true
		if _, err := applyAgain(t.Context(), b.Namespace.Apply, batch); err != nil {
			t.Fatal(err)
		}
	}
	k.wantState(t, newest.want(k))
	l.wantState(t, newest.want(l))
}
