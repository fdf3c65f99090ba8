package recordtest

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var fixedTests = []test{
	{"guards are invisible", withApp(fixedInvisible)},
	{"a field named as the guards' in a source", withApp(fixedOwnFieldSource)},
	{"a field named as the guards' in a target", withApp(fixedOwnFieldTarget)},
	{"an id changes its type", withApp(fixedIDType)},
	{"application writes next to guards", withApp(fixedBeside)},
	{"prepare changes nothing", withApp(fixedPrepare)},
	{"fence and unfence", withApp(classes(fixedFence))},
	{"appliers over a seal", withApp(classes(fixedSeal))},
	{"unfence restores the own validator", withApp(classes(fixedValidator))},
	{"unfence of a kind that is not fenced", withApp(classes(unfenceIdle))},
	{"second attempt", withApp(classes(fixedAgain))},
	{"writes behind the fence", withApp(classes(fixedBehind))},
	{"an ended fence is not upheld", withApp(classes(fixedUpheld))},
	{"application hammers", withApp(classes(fixedHammer))},
	{"late deletes are reported", withApp(fixedLateDelete)},
	{"hidden target takes its name", withApp(fixedTakesName)},
	{"names of a hidden target are told", withApp(fixedHiddenMarkers)},
	{"a name that is taken", withApp(fixedNameTaken)},
}

func (k *kind) insert(t *testing.T, ds ...bson.Raw) {
	t.Helper()
	for _, d := range ds {
		if err := k.b.App.Insert(t.Context(), k.spec.Name, d); err != nil {
			t.Fatalf("application inserts %s: %v", d, err)
		}
	}
}

// wantDocuments compares the application's view of a collection byte for byte.
func (b *bench) wantDocuments(t *testing.T, name string, want ...bson.Raw) {
	t.Helper()
	have, err := b.App.Documents(t.Context(), name)
	if err != nil {
		t.Fatalf("documents of %s: %v", name, err)
	}
	for _, d := range have {
		if !slices.ContainsFunc(want, func(w bson.Raw) bool { return bytes.Equal(w, d) }) {
			t.Errorf("%s holds %s", name, d)
		}
	}
	if len(have) != len(want) {
		t.Errorf("%s holds %d documents, want %d", name, len(have), len(want))
	}
}

func fixedInvisible(t *testing.T, b *bench) {
	k := b.fixed(t)
	var live []bson.Raw
	var gs []record.GroupWrite
	ids := k.types()
	for i, id := range ids {
		d := raw(bson.D{{Key: "_id", Value: id}, {Key: "i", Value: int32(i)}})
		key, err := record.KeyOfDoc(d)
		if err != nil {
			t.Fatal(err)
		}
		w := record.Write{Kind: k.spec.Name, Key: key, Doc: d}
		gs = append(gs, record.GroupWrite{Group: key.String(), Version: version(1), Writes: []record.Write{w}})
		live = append(live, d)
	}
	// Apply and Load must both keep guards out of the application's view.
	half := len(gs) / 2
	for _, r := range append(b.apply(t, tokens(k), 1, gs[:half]...), b.load(t, tokens(k), 1, gs[half:]...)...) {
		if r.Outcome != record.Applied {
			t.Errorf("%s (%v)", r.Outcome, r.Err)
		}
	}
	b.wantDocuments(t, k.tok.Name, live...)
	// Delete every third document and replace every third.
	for i := range gs {
		gs[i].Version = version(2)
		switch i % 3 {
		case 0:
			gs[i].Writes[0].Doc, live[i] = nil, nil
		case 1:
			d := raw(bson.D{{Key: "_id", Value: ids[i]}, {Key: "again", Value: int64(i)}})
			gs[i].Writes[0].Doc, live[i] = d, d
		}
	}
	for _, r := range b.apply(t, tokens(k), 1, gs...) {
		if r.Outcome != record.Applied {
			t.Errorf("%s (%v)", r.Outcome, r.Err)
		}
	}
	b.wantDocuments(t, k.tok.Name, slices.DeleteFunc(live, func(d bson.Raw) bool { return d == nil })...)
	have := k.all(t)
	for i, g := range gs {
		r, ok := have[g.Writes[0].Key]
		if !ok || r.Guard != guard(1, 2) || r.Tombstone != (i%3 == 0) || !bytes.Equal(r.Doc, g.Writes[0].Doc) {
			t.Errorf("%s: %+v", g.Group, r)
		}
	}
}

// fixedIDType deletes {_id: 5} and inserts {_id: 5.0}, which is another document with the same key.
func fixedIDType(t *testing.T, b *bench) {
	if b.TextKeys {
		t.Log("left out: the backend has only texts as an _id")
		return
	}
	scope := func(n any) bson.CodeWithScope {
		return bson.CodeWithScope{Code: "f", Scope: bson.D{{Key: "n", Value: n}}}
	}
	for name, ids := range map[string][]any{
		"number":          {int32(5), 5.0, int64(5)},
		"text":            {"a", bson.Symbol("a"), "a"},
		"within":          {bson.D{{Key: "k", Value: "a"}, {Key: "n", Value: int32(1)}}, bson.D{{Key: "k", Value: bson.Symbol("a")}, {Key: "n", Value: 1.0}}},
		"code with scope": {scope(int32(1)), scope(1.0)},
	} {
		k, next := b.fixed(t), 1
		apply := func(key record.Key, doc bson.Raw) {
			t.Helper()
			w := record.Write{Kind: k.spec.Name, Key: key, Doc: doc}
			res := b.apply(t, tokens(k), 1, record.GroupWrite{Group: name, Version: version(next), Writes: []record.Write{w}})
			wantOutcomes(t, res, record.Applied)
			next++
		}
		var key record.Key
		for v, id := range ids {
			d := raw(bson.D{{Key: "_id", Value: id}, {Key: "v", Value: int32(v)}})
			of, err := record.KeyOfDoc(d)
			if err != nil {
				t.Fatal(err)
			}
			// All ids of a row must have one key.
			if key != "" && of != key {
				t.Fatalf("%s: two keys", name)
			}
			key = of
			apply(key, d)
			b.wantDocuments(t, k.tok.Name, d)
			if v%2 == 1 { // write the next document over a tombstone
				apply(key, nil)
				b.wantDocuments(t, k.tok.Name)
				apply(key, d)
				b.wantDocuments(t, k.tok.Name, d)
			}
		}
	}
}

// fixedBeside checks that guards next to an application's documents stay in force when it writes
// the documents.
func fixedBeside(t *testing.T, b *bench) {
	k := b.fixed(t)
	b.apply(t, tokens(k), 1, group(5, k.set("a", 5)), group(5, k.set("b", 5)))
	if err := b.App.Put(t.Context(), k.tok.Name, doc("a", 70)); err != nil {
		t.Fatal(err)
	}
	if err := b.App.Delete(t.Context(), k.tok.Name, valueOf("b")); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(4, k.set("a", 4)), group(4, k.set("b", 4))), record.Stale, record.Stale)
	b.wantDocuments(t, k.tok.Name, doc("a", 70))
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(6, k.set("a", 6)), group(6, k.set("b", 6))), record.Applied, record.Applied)
	b.wantDocuments(t, k.tok.Name, doc("a", 6), doc("b", 6))
}

func fixedPrepare(t *testing.T, b *bench) {
	k := b.fixed(t)
	k.insert(t, doc("a", 1))
	class, _, err := b.prepare(t, k.tok, "")
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	switch class {
	case record.FenceView, record.FenceRole, record.FenceValidator, record.FenceWriteBlock:
	default:
		t.Errorf("class %q for a fixed-name kind", class)
	}
	k.insert(t, doc("b", 1))
	b.wantDocuments(t, k.tok.Name, doc("a", 1), doc("b", 1))
	// The engine must learn of an unknown class before it holds writes.
	if _, _, err := b.Namespace.Prepare(t.Context(), k.tok, "no such class"); err == nil {
		t.Error("an unknown class was granted")
	}
}

// fixedTakesName checks that a target is built under a hidden name. It takes the application's name
// at the flip and keeps its guards. An abort hides it again.
func fixedTakesName(t *testing.T, b *bench) {
	k := b.hidden(t, uniqueShape(b)...)
	b.apply(t, tokens(k), 1, group(5, k.mail("a", "m@x")), group(5, k.set("b", -1)))
	move := func(to string) {
		t.Helper()
		f := record.Fence{Class: record.FenceUUID, Token: k.tok, To: to}
		for range 2 {
			if err := b.Namespace.Fence(t.Context(), f); err != nil {
				t.Fatalf("rename to %s: %v", to, err)
			}
		}
		// Tokens with the earlier name must fail, and the guards must still hold.
		old := k.tok
		k.tok.Name = to
		_, err := b.Namespace.Apply(t.Context(), record.Batch{Tokens: record.Tokens{k.spec.Name: old}, Epoch: 9, Groups: []record.GroupWrite{group(9, k.set("a", 9))}})
		wantError(t, "apply with an old token", err, record.ErrFenced)
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(4, k.set("a", 4)), group(4, k.set("b", 4))), record.Stale, record.Stale)
		b.wantDocuments(t, to, k.mail("a", "m@x").Doc)
	}
	move(k.spec.Name)
	if !b.NoIndexes {
		if err := b.App.Insert(t.Context(), k.spec.Name, k.mail("c", "m@x").Doc); err == nil {
			t.Error("the unique index did not survive the rename")
		}
	}
	move(record.PhysicalName(k.spec.Name, 1))
	b.wantDocuments(t, k.spec.Name)
}

// fixedHiddenMarkers checks that a stream of a kind reports each name of its collection, also while
// it is hidden.
func fixedHiddenMarkers(t *testing.T, b *bench) {
	k := b.hidden(t)
	s := b.follow(t, b.now(t), k)
	for _, to := range []string{record.PhysicalName(k.spec.Name, 2), k.spec.Name, record.PhysicalName(k.spec.Name, 3)} {
		if err := b.Namespace.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: k.tok, To: to}); err != nil {
			t.Fatal(err)
		}
		k.tok.Name = to
		next(t, s, marked(k, to))
	}
}

func uniqueShape(b *bench) []record.Shape {
	if b.NoIndexes {
		return nil
	}
	return []record.Shape{uniqueOn("mail")}
}

// fixedNameTaken checks that a rename never replaces the collection that has the name.
func fixedNameTaken(t *testing.T, b *bench) {
	k, other := b.hidden(t), b.fixed(t)
	other.insert(t, doc("theirs", 1))
	k.put(t, "ours")
	err := b.Namespace.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: k.tok, To: other.spec.Name})
	if err == nil || errors.Is(err, record.ErrUnknown) {
		t.Errorf("rename to a name that is taken: %v", err)
	}
	b.wantDocuments(t, other.spec.Name, doc("theirs", 1))
	b.wantDocuments(t, k.tok.Name, doc("ours", 0))
}
