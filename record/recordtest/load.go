package recordtest

import (
	"errors"
	"fmt"
	"testing"

	"dbcontroller/record"
)

var loadTests = []test{
	{"inserts", flavours(loadInserts)},
	{"meets what is there", flavours(loadMeets)},
	{"nothing partial", flavours(loadAtomic)},
	{"large batch", flavours(loadLarge)},
	{"meets a client's record", withClient(loadMeetsClient)},
	{"meets an application's document", withApp(loadMeetsApp)},
	{"unique index refuses one group", flavours(loadUnique)},
}

func loadInserts(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	wantOutcomes(t, b.load(t, tokens(k, l), 4,
		group(7, k.set("a", 1)), group(8, k.set("b", 2), l.set("b/1", 2)), group(9, k.set("c", -1)),
	), record.Applied, record.Applied, record.Applied)
	k.wantState(t, map[string]record.Record{"a": at("a", 1, guard(4, 7)), "b": at("b", 2, guard(4, 8)), "c": at("c", -1, guard(4, 9))})
	l.wantState(t, map[string]record.Record{"b/1": at("b/1", 2, guard(4, 8))})
	// Loaded states have guards like applied ones.
	wantOutcomes(t, b.apply(t, tokens(k, l), 4, group(6, k.set("a", 6)), group(10, k.set("b", 10)), group(8, k.set("c", 8))),
		record.Stale, record.Applied, record.Stale)
}

func loadMeets(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 1, group(5, k.set("live", 5)), group(5, k.set("dead", -1)))
	before := k.all(t)
	// Newer or older, in this epoch or the next: Load never overwrites.
	for _, v := range []int{3, 5, 7} {
		for epoch := uint64(1); epoch <= 2; epoch++ {
			wantOutcomes(t, b.load(t, tokens(k), epoch, group(v, k.set("live", v)), group(v, k.set("dead", v))), record.Changed, record.Changed)
		}
	}
	wantSame(t, before, k.all(t))
	// Loading twice meets the first.
	wantOutcomes(t, b.load(t, tokens(k), 1, group(5, k.set("new", 5))), record.Applied)
	wantOutcomes(t, b.load(t, tokens(k), 1, group(5, k.set("new", 5))), record.Changed)
}

func loadAtomic(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	toks := tokens(k, l)
	b.apply(t, toks, 1, group(1, l.set("x/2", 1)), group(1, k.set("y", -1)))
	wantOutcomes(t, b.load(t, toks, 1,
		group(3, k.set("x", 3), l.set("x/1", 3), l.set("x/2", 3)),
		group(3, k.set("free", 3)),
		group(3, l.set("y/1", 3), k.set("y", 3)),
	), record.Changed, record.Applied, record.Changed)
	k.wantState(t, map[string]record.Record{"y": at("y", -1, guard(1, 1)), "free": at("free", 3, guard(1, 3))})
	l.wantState(t, map[string]record.Record{"x/2": at("x/2", 1, guard(1, 1))})
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
	k.wantState(t, map[string]record.Record{"a": at("a", 9, record.Guard{}), "b": at("b", 1, guard(1, 1))})
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
	if len(have) != 4 {
		t.Errorf("%d records, want a, b, c and f", len(have))
	}
	for _, name := range []string{"d", "e"} {
		if _, ok := have[record.StringKey(name)]; ok {
			t.Errorf("%s of the refused group is there", name)
		}
	}
}
