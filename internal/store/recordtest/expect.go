package recordtest

import (
	"testing"

	"dbcontroller.dev/record"
)

// expect returns the write with the guard that its record must still have.
func expect(g record.Guard, w record.Write) record.Write {
	w.Expect = &g
	return w
}

// applyExpectSeveral checks that each expectation of a group counts, at any place in the group, and
// for live, absent and tombstoned records. If one fails, nothing changes.
func applyExpectSeveral(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	expectSeveral(t, b, k, l)
}

// applyExpectMixed checks that a group may contain records of managed and fixed-name kinds.
func applyExpectMixed(t *testing.T, b *bench) {
	expectSeveral(t, b, b.managed(t), b.fixed(t))
	expectSeveral(t, b, b.fixed(t), b.managed(t))
}

func expectSeveral(t *testing.T, b *bench, k, l *kind) {
	t.Helper()
	toks := tokens(k, l)
	none := record.Guard{}
	wantOutcomes(t, b.apply(t, toks, 1, group(2, k.set("live", 2), l.set("live", 2)), group(3, k.set("dead", -1), l.set("dead", -1))),
		record.Applied, record.Applied)
	// The present guard of each record, and the write that follows from it.
	holds := []struct {
		guard record.Guard
		write func(v int) record.Write
	}{
		{guard(1, 2), func(v int) record.Write { return k.set("live", v) }},
		{guard(1, 3), func(v int) record.Write { return l.set("dead", v) }},
		{none, func(int) record.Write { return k.set("absent", -1) }},
		{guard(1, 3), func(v int) record.Write { return k.set("dead", v) }},
		{none, func(v int) record.Write { return l.set("absent", v) }},
		{guard(1, 2), func(int) record.Write { return l.set("live", -1) }},
	}
	before, beforeL := k.all(t), l.all(t)
	// Make one expectation wrong at a time, with every other guard in turn.
	for wrong := range holds {
		for _, g := range []record.Guard{none, guard(1, 1), guard(1, 2), guard(1, 3), guard(1, 4), guard(0, 2)} {
			if g == holds[wrong].guard {
				continue
			}
			var ws []record.Write
			for i, h := range holds {
				at := h.guard
				if i == wrong {
					at = g
				}
				ws = append(ws, expect(at, h.write(9)))
			}
			gw := group(9, ws...)
			gw.Anchor = (wrong + 1) % len(ws) // keep the anchor away from the wrong expectation
			if r := b.apply(t, toks, 1, gw)[0]; r.Outcome != record.Changed {
				t.Errorf("record %d expected at %v instead of %v: %s (%v)", wrong, g, holds[wrong].guard, r.Outcome, r.Err)
			}
		}
	}
	wantSame(t, before, k.all(t))
	wantSame(t, beforeL, l.all(t))
	// An expectation in one group does not affect another group of the batch.
	wantOutcomes(t, b.apply(t, toks, 1, group(4, expect(guard(1, 1), k.set("dead", 4))), group(4, expect(none, k.set("new", 4)), l.set("new", 4))),
		record.Changed, record.Applied)
	// With all expectations true, the group applies, including a write without an expectation.
	var ws []record.Write
	for _, h := range holds {
		ws = append(ws, expect(h.guard, h.write(9)))
	}
	wantOutcomes(t, b.apply(t, toks, 1, group(9, append(ws, k.set("new", 9))...)), record.Applied)
	now := guard(1, 9)
	k.wantState(t, map[string]record.Record{"live": at("live", 9, now), "absent": at("absent", -1, now), "dead": at("dead", 9, now), "new": at("new", 9, now)})
	l.wantState(t, map[string]record.Record{"live": at("live", -1, now), "absent": at("absent", 9, now), "dead": at("dead", 9, now), "new": at("new", 4, guard(1, 4))})
}

// applyNext checks the versions made from a snapshot. Each is later than the one before and earlier
// than the next snapshot.
func applyNext(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	toks := tokens(k)
	snapshot := func(notBefore record.Version) record.Version {
		t.Helper()
		s, err := b.Namespace.Read(t.Context(), record.ReadRequest{
			Tokens: toks, Select: []record.Selector{{Kind: k.spec.Name, Key: record.StringKey("a")}}, NotBefore: notBefore,
		})
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		return s.Version
	}
	first := snapshot(record.Version{})
	last := first
	for i := range 3 {
		v := last.Next()
		if v.Compare(last) <= 0 || v.Snapshot() != first {
			t.Errorf("%s comes after %s, of snapshot %s", v, last, v.Snapshot())
		}
		gw := group(0, k.set("a", i))
		gw.Version = v
		// The version before must be stale afterwards.
		stale := group(0, k.set("a", 77))
		stale.Version = last
		wantOutcomes(t, b.apply(t, toks, 1, gw), record.Applied)
		wantOutcomes(t, b.apply(t, toks, 1, stale), record.Stale)
		k.wantState(t, map[string]record.Record{"a": at("a", i, record.Guard{Epoch: 1, Version: v})})
		last = v
	}
	// A read not before such a version returns its snapshot or a later one.
	if v := snapshot(last); v.Compare(first) < 0 || v != v.Snapshot() {
		t.Errorf("a snapshot not before %s is %s", last, v)
	}
	wantOutcomes(t, b.apply(t, toks, 1, group(1, k.set("later", 1))), record.Applied)
	pos := b.now(t)
	if v := snapshot(pos.At); v.Compare(last) <= 0 {
		t.Errorf("a snapshot after a later change is %s, want later than %s", v, last)
	}
}
