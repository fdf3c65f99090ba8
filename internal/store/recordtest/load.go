package recordtest

import (
	"errors"
	"fmt"
	"testing"

	"dbcontroller.dev/record"
)

var loadTests = []test{
	{"inserts", flavours(loadInserts)},
	{"leaves what is there", flavours(loadLeaves)},
	{"a group by halves", flavours(loadHalves)},
	{"brings back what was deleted", withApp(loadBringsBack)},
	{"large batch", flavours(loadLarge)},
	{"meets a client's record", withClient(loadMeetsClient)},
	{"meets an application's document", withApp(loadMeetsApp)},
	{"unique index refuses one group", flavours(loadUnique)},
}

// loaded returns the guard that Load leaves: none in a fixed-name kind.
func (k *kind) loaded(g record.Guard) record.Guard {
	if k.spec.Fixed {
		return record.Guard{}
	}
	return g
}

func loadInserts(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	wantOutcomes(t, b.load(t, tokens(k, l), 4,
		group(7, k.set("a", 1)), group(8, k.set("b", 2), l.set("b/1", 2)), group(9, k.set("c", -1), l.set("c/1", 3)),
	), record.Applied, record.Applied, record.Applied)
	k.wantState(t, map[string]record.Record{"a": at("a", 1, k.loaded(guard(4, 7))), "b": at("b", 2, k.loaded(guard(4, 8)))})
	l.wantState(t, map[string]record.Record{"b/1": at("b/1", 2, l.loaded(guard(4, 8))), "c/1": at("c/1", 3, l.loaded(guard(4, 9)))})
	// A later Apply with a later version wins.
	wantOutcomes(t, b.apply(t, tokens(k, l), 4, group(9, k.set("a", 9)), group(10, k.set("b", 10), l.set("b/1", -1)), group(11, k.set("c", 11), l.set("c/1", -1))),
		record.Applied, record.Applied, record.Applied)
	k.wantState(t, map[string]record.Record{"a": at("a", 9, guard(4, 9)), "b": at("b", 10, guard(4, 10)), "c": at("c", 11, guard(4, 11))})
	l.wantState(t, map[string]record.Record{"b/1": at("b/1", -1, guard(4, 10)), "c/1": at("c/1", -1, guard(4, 11))})
}

func loadLeaves(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 1, group(5, k.set("live", 5)))
	before := k.all(t)
	// Load never overwrites a record, whatever the version and epoch.
	for _, v := range []int{3, 5, 7} {
		for epoch := uint64(1); epoch <= 2; epoch++ {
			wantOutcomes(t, b.load(t, tokens(k), epoch, group(v, k.set("live", v))), record.Changed)
		}
	}
	wantSame(t, before, k.all(t))
	// A second Load finds the record of the first.
	wantOutcomes(t, b.load(t, tokens(k), 1, group(5, k.set("new", 5))), record.Applied)
	wantOutcomes(t, b.load(t, tokens(k), 1, group(5, k.set("new", 5))), record.Changed)
	if k.spec.Fixed {
		return
	}
	// A managed kind's tombstone also counts as an existing record.
	b.apply(t, tokens(k), 1, group(5, k.set("dead", -1)))
	wantOutcomes(t, b.load(t, tokens(k), 2, group(9, k.set("dead", 9))), record.Changed)
}

func loadHalves(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	toks := tokens(k, l)
	b.apply(t, toks, 1, group(1, l.set("x/2", 1)))
	// One member exists, so Load writes the others and reports Changed.
	wantOutcomes(t, b.load(t, toks, 1,
		group(3, k.set("x", 3), l.set("x/1", 3), l.set("x/2", 3)),
		group(3, k.set("free", 3)),
	), record.Changed, record.Applied)
	k.wantState(t, map[string]record.Record{"x": at("x", 3, k.loaded(guard(1, 3))), "free": at("free", 3, k.loaded(guard(1, 3)))})
	l.wantState(t, map[string]record.Record{"x/1": at("x/1", 3, l.loaded(guard(1, 3))), "x/2": at("x/2", 1, guard(1, 1))})
	// Apply completes the group at the very version of the Load.
	repair := record.Batch{Tokens: toks, Epoch: 1, Repair: true, Groups: []record.GroupWrite{group(3, k.set("x", 3), l.set("x/1", 3), l.set("x/2", 3))}}
	res, err := b.Namespace.Apply(t.Context(), repair)
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, res, record.Applied)
	l.wantState(t, map[string]record.Record{"x/1": at("x/1", 3, guard(1, 3)), "x/2": at("x/2", 3, guard(1, 3))})
}

// loadBringsBack loads an image from before a delete after the delete was applied. The source has
// not changed since, so no later version will ever remove the record. Only a repair can.
func loadBringsBack(t *testing.T, b *bench) {
	k := b.fixed(t)
	dead := group(5, k.set("dead", -1))
	wantOutcomes(t, b.apply(t, tokens(k), 1, dead), record.Applied)
	wantOutcomes(t, b.load(t, tokens(k), 1, group(3, k.set("dead", 3))), record.Applied)
	k.wantState(t, map[string]record.Record{"dead": at("dead", 3, guard(1, 5))})
	// Without a repair, the delete at the same version stays stale.
	for _, stale := range []record.GroupWrite{dead, group(4, k.set("dead", -1))} {
		wantOutcomes(t, b.apply(t, tokens(k), 1, stale), record.Stale)
	}
	// A repair overwrites its own version, but no newer one.
	for v, want := range map[int]record.Outcome{4: record.Stale, 5: record.Applied} {
		res, err := b.Namespace.Apply(t.Context(), record.Batch{Tokens: tokens(k), Epoch: 1, Repair: true, Groups: []record.GroupWrite{group(v, k.set("dead", -1))}})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcomes(t, res, want)
	}
	k.wantState(t, map[string]record.Record{"dead": at("dead", -1, guard(1, 5))})
}

func loadLarge(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 1, group(1, k.set("n0100", 7)))
	var gs []record.GroupWrite
	for i := range 300 {
		gs = append(gs, group(2, k.set(fmt.Sprintf("n%04d", i), i)))
	}
	for i, r := range b.load(t, tokens(k), 1, gs...) {
		want := record.Applied
		// One record exists already. It must not affect the others.
		if i == 100 {
			want = record.Changed
		}
		if r.Outcome != want {
			t.Errorf("group %d: %s (%v), want %s", i, r.Outcome, r.Err, want)
		}
	}
	have := k.all(t)
	if len(have) != 300 {
		t.Errorf("%d records, want 300", len(have))
	}
	if r := have[record.StringKey("n0100")]; r.Guard != guard(1, 1) {
		t.Errorf("the record that was there has guard %v", r.Guard)
	}
}

func loadMeetsClient(t *testing.T, b *bench) {
	k := b.managed(t)
	if err := b.Client.Write(t.Context(), tokens(k), []record.Mutation{{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: doc("a", 9)}}); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, b.load(t, tokens(k), 1, group(1, k.set("a", 1))), record.Changed)
	k.wantState(t, map[string]record.Record{"a": at("a", 9, record.Guard{})})
}

func loadMeetsApp(t *testing.T, b *bench) {
	k := b.fixed(t)
	if err := b.App.Insert(t.Context(), k.tok.Name, doc("a", 9)); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, b.load(t, tokens(k), 1, group(1, k.set("a", 1)), group(1, k.set("b", 1))), record.Changed, record.Applied)
	k.wantState(t, map[string]record.Record{"a": at("a", 9, record.Guard{}), "b": at("b", 1, record.Guard{})})
}

func loadUnique(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no unique indexes")
		return
	}
	k := mk(t, uniqueOn("mail"))
	res := b.load(t, tokens(k), 1,
		group(1, k.mail("a", "m@x")), group(1, k.mail("b", "n@x")))
	wantOutcomes(t, res, record.Applied, record.Applied)
	res = b.load(t, tokens(k), 1,
		group(1, k.mail("c", "o@x")), group(1, k.mail("d", "s@x"), k.mail("e", "m@x")), group(1, k.mail("f", "q@x")), group(1, k.mail("a", "r@x")))
	wantOutcomes(t, res, record.Applied, record.Refused, record.Applied, record.Changed)
	if !errors.Is(res[1].Err, record.ErrConflict) {
		t.Errorf("refused with %v, want ErrConflict", res[1].Err)
	}
	have := k.all(t)
	// Load is not atomic, so d exists although its group was refused.
	if _, ok := have[record.StringKey("e")]; ok || len(have) != 5 {
		t.Errorf("%d records, want a, b, c, d and f", len(have))
	}
}
