package recordtest

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// followTarget opens a stream of Follow. The end of the test closes it.
func (b *bench) followTarget(t *testing.T, from record.Position, toks record.Tokens) record.Stream {
	t.Helper()
	s, err := b.Namespace.Follow(t.Context(), from, toks)
	if err != nil {
		t.Fatalf("follow: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close stream: %v", err)
		}
	})
	return s
}

// changesTarget checks that every change of an Apply has its guard, also where records exchange unique
// values or have a field that begins with $, and that the stream follows the collection through
// renames.
func changesTarget(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	var shape []record.Shape
	if !b.NoIndexes {
		shape = append(shape, uniqueOn("mail"))
	}
	k := mk(t, shape...)
	odd := func(n int) record.Write {
		doc := raw(bson.D{{Key: "_id", Value: "odd"}, {Key: "mail", Value: "odd"}, {Key: "$n", Value: n}})
		return record.Write{Kind: k.spec.Name, Key: record.StringKey("odd"), Doc: doc}
	}
	b.apply(t, tokens(k), 1, group(1, k.mail("old", "1")), group(1, k.mail("x", "x"), k.mail("y", "y")), group(1, odd(1)))
	from := b.now(t)
	s := b.followTarget(t, from, tokens(k))
	toks := tokens(k)
	wantOutcomes(t, b.apply(t, toks, 1, group(2, k.mail("a", "a"), k.mail("b", "b")), group(3, k.mail("c", "c"))), record.Applied, record.Applied)
	wantOutcomes(t, b.apply(t, toks, 1, group(4, k.mail("a", "d"), k.set("b", -1))), record.Applied)
	wantOutcomes(t, b.apply(t, toks, 1, group(2, k.mail("x", "y"), k.mail("y", "x"))), record.Applied)
	wantOutcomes(t, b.apply(t, toks, 1, group(3, odd(2))), record.Applied)
	// A stale write must leave no change.
	wantOutcomes(t, b.apply(t, toks, 1, group(4, k.mail("a", "e"))), record.Stale)
	want := map[string]int{"a/2": 1, "b/2": 1, "c/3": 1, "a/4": 1, "b/4": 1, "x/2": 1, "y/2": 1, "odd/3": 1}
	got := map[string]int{}
	// Read the changes once as they come, and again later from the same position.
	next(t, s, func(all []record.Change) bool { return len(all) >= len(want) })
	s = b.followTarget(t, from, tokens(k))
	all, _ := next(t, s, func(all []record.Change) bool { return len(all) >= len(want) })
	for _, c := range all {
		if c.Origin == record.ForeignChange && !(b.SeveralLogs && c.Delete) {
			t.Errorf("%s of %s counts as somebody else's", c.Key, c.Kind)
		}
		name, _ := c.Key.Name()
		for v := range 5 {
			if c.Guard == (record.Guard{Epoch: 1, Version: version(v)}) {
				got[fmt.Sprintf("%s/%d", name, v)]++
			}
		}
	}
	if !b.SeveralLogs && fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("guards %v, want %v", got, want)
	}
}

// changesForeign checks that no application change looks like an Apply's, whatever guards lie next
// to the documents.
func changesForeign(t *testing.T, b *bench) {
	k := b.fixed(t)
	b.apply(t, tokens(k), 1, group(1, k.set("mine", 1)), group(1, k.set("gone", 1)))
	s := b.followTarget(t, b.now(t), tokens(k))
	for _, d := range []bson.Raw{doc("mine", 7), doc("new", 8)} {
		if err := b.App.Put(t.Context(), k.tok.Name, d); err != nil {
			t.Fatal(err)
		}
	}
	// A delete must count as foreign, too.
	gone, _ := record.KeyOfDoc(doc("gone", 0))
	if err := b.App.Delete(t.Context(), k.tok.Name, gone.Value()); err != nil {
		t.Fatal(err)
	}
	all, _ := next(t, s, func(all []record.Change) bool { return len(all) >= 3 })
	for _, c := range all {
		if c.Origin != record.ForeignChange || !c.Guard.IsZero() {
			t.Errorf("%+v does not count as somebody else's", c)
		}
	}
}

// changesNudge checks that a nudge makes streams report their progress.
func changesNudge(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	s := b.followTarget(t, b.now(t), tokens(k))
	// The stream must reach a place after this one without any change.
	at := b.now(t)
	if err := b.Namespace.Nudge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for ctx := bounded(t); ; {
		batch, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch.Changes) > 0 {
			t.Errorf("changes %+v, want none", batch.Changes)
		}
		if batch.Pos.At.Compare(at.At) >= 0 {
			return
		}
	}
}
