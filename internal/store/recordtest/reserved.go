package recordtest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// lookalikes returns an application's documents with a field of the reserved name. The field looks
// like a tombstone, like a guard higher than any other, like both, or like nothing that a backend
// writes.
func lookalikes() map[string]bson.Raw {
	// A backend that mistakes the field for a guard would refuse every later write.
	high := bytes.Repeat([]byte{0xff}, 24)
	docs := map[string]bson.Raw{}
	for i, v := range []any{
		bson.D{{Key: "x", Value: true}},
		bson.D{{Key: "x", Value: false}},
		bson.D{{Key: "g", Value: bson.Binary{Data: high}}},
		bson.D{{Key: "g", Value: bson.Binary{Data: high}}, {Key: "x", Value: true}},
		bson.D{{Key: "g", Value: bson.Binary{Data: high[:12]}}},
		bson.D{},
		bson.D{{Key: record.ReservedField, Value: bson.D{{Key: "x", Value: true}}}},
		bson.A{bson.D{{Key: "x", Value: true}}},
		true, int32(1), "x", nil,
	} {
		own := bson.E{Key: record.ReservedField, Value: v}
		last, alone, inner := fmt.Sprint("last", i), fmt.Sprint("alone", i), fmt.Sprint("inner", i)
		docs[last] = raw(bson.D{{Key: "_id", Value: last}, {Key: "n", Value: int32(i)}, own})
		docs[alone] = raw(bson.D{{Key: "_id", Value: alone}, own})
		docs[inner] = raw(bson.D{{Key: "_id", Value: inner}, own, {Key: "sub", Value: bson.D{own}}, {Key: "n", Value: int32(i)}})
	}
	return docs
}

// fixedOwnFieldSource checks that a source returns the application's documents unchanged.
func fixedOwnFieldSource(t *testing.T, b *bench) {
	k := b.fixed(t)
	docs := lookalikes()
	k.insert(t, slices.Collect(maps.Values(docs))...)
	check := func(how string, recs []record.Record, keysOnly bool) {
		t.Helper()
		for _, r := range recs {
			name, _ := r.Key.Name()
			want := docs[name]
			if keysOnly {
				want = raw(bson.D{{Key: "_id", Value: name}})
			}
			if !bytes.Equal(r.Doc, want) || r.Tombstone || !r.Guard.IsZero() {
				t.Errorf("%s: %s holds %s with guard %v (tombstone %t), want %s", how, name, r.Doc, r.Guard, r.Tombstone, want)
			}
		}
		if len(recs) != len(docs) {
			t.Errorf("%s: %d records, want %d", how, len(recs), len(docs))
		}
	}
	var byKey []record.Selector
	for name := range docs {
		byKey = append(byKey, record.Selector{Kind: k.spec.Name, Key: record.StringKey(name)})
	}
	// No kind of read may take the field for a guard or a tombstone.
	for _, guards := range []bool{false, true} {
		for _, keysOnly := range []bool{false, true} {
			how := fmt.Sprintf("scan, guards %t, keys only %t", guards, keysOnly)
			check(how, k.scan(t, record.ScanRequest{Limit: 7, Guards: guards, KeysOnly: keysOnly}), keysOnly)
		}
		for how, sel := range map[string][]record.Selector{
			"keys": byKey, "prefix": {{Kind: k.spec.Name, Key: record.StringKey(""), Prefix: true}},
		} {
			snap, err := b.Namespace.Read(t.Context(), record.ReadRequest{Tokens: tokens(k), Select: sel, NotBefore: b.now(t).At, Guards: guards})
			if err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprintf("read by %s, guards %t", how, guards), snap.Records, false)
		}
	}
	// Swap must also treat the field as the application's.
	var swaps []record.Swap
	// The new documents have the field in yet another form.
	for name, was := range docs {
		docs[name] = raw(bson.D{{Key: "_id", Value: name}, {Key: record.ReservedField, Value: bson.D{{Key: "x", Value: true}, {Key: "was", Value: was}}}})
		swaps = append(swaps, swapOf(name, was, docs[name]))
	}
	for i, r := range k.swap(t, swaps...) {
		if r.Outcome != record.Applied {
			t.Errorf("swap of %s: %s (%v)", swaps[i].Was, r.Outcome, r.Err)
		}
	}
	b.wantDocuments(t, k.spec.Name, slices.Collect(maps.Values(docs))...)
}

// fixedOwnFieldTarget checks that a target holds the applied documents with the guards of Apply,
// whatever the documents contain. Purge must remove only tombstones.
func fixedOwnFieldTarget(t *testing.T, b *bench) {
	k := b.hidden(t)
	docs := lookalikes()
	live := slices.Collect(maps.Values(docs))
	write := func(v int, name string, d bson.Raw) record.GroupWrite {
		return group(v, record.Write{Kind: k.spec.Name, Key: record.StringKey(name), Doc: d})
	}
	all := func(v int) (gs []record.GroupWrite) {
		for name, d := range docs {
			gs = append(gs, write(v, name, d))
		}
		return gs
	}
	want := func(outcome record.Outcome, res []record.Result) {
		t.Helper()
		for i, r := range res {
			if r.Outcome != outcome {
				t.Errorf("result %d: %s (%v), want %s", i, r.Outcome, r.Err, outcome)
			}
		}
	}
	// Load half of the documents, apply all of them, and check the stale and newer versions.
	half := all(1)
	want(record.Applied, b.load(t, tokens(k), 1, half[:len(half)/2]...))
	want(record.Changed, b.load(t, tokens(k), 1, half[:len(half)/2]...))
	want(record.Applied, b.apply(t, tokens(k), 1, all(2)...))
	b.wantDocuments(t, k.tok.Name, live...)
	want(record.Stale, b.apply(t, tokens(k), 1, all(1)...))
	want(record.Applied, b.apply(t, tokens(k), 1, all(3)...))
	// All guards must be those of the last Apply.
	state := map[string]record.Record{}
	for name, d := range docs {
		state[name] = record.Record{Doc: d, Guard: guard(1, 3)}
	}
	k.wantState(t, state)
	wantOutcomes(t, b.apply(t, tokens(k), 1, write(4, "last0", nil), write(4, "never", nil)), record.Applied, record.Applied)
	state["last0"], state["never"] = record.Record{Guard: guard(1, 4)}, record.Record{Guard: guard(1, 4)}
	k.wantState(t, state)
	if err := b.Namespace.Purge(t.Context(), k.tok); err != nil {
		t.Fatal(err)
	}
	delete(state, "last0")
	delete(state, "never")
	k.wantState(t, state)
}

// managedReserved checks that no client can write the reserved field at the top level of a managed
// kind. Below the top level it is an ordinary field.
func managedReserved(t *testing.T, b *bench) {
	k := b.managed(t)
	k.put(t, "a")
	nested := raw(bson.D{{Key: "_id", Value: "nested"}, {Key: "sub", Value: bson.D{{Key: record.ReservedField, Value: bson.D{{Key: "x", Value: true}}}}}})
	put := record.Mutation{Kind: k.spec.Name, Key: record.StringKey("nested"), Doc: nested}
	ok(t, "nested field", k.do(t, put))
	if d, err := k.get(t, "nested"); err != nil || !bytes.Equal(d, nested) {
		t.Errorf("nested field: %s, %v", d, err)
	}
	for name, d := range lookalikes() {
		// Every operation must refuse the field.
		m := record.Mutation{Kind: k.spec.Name, Key: record.StringKey(name), Doc: d}
		wantError(t, fmt.Sprintf("put of %s", d), k.do(t, m), record.ErrReserved)
		m.Absent = true
		wantError(t, fmt.Sprintf("create of %s", d), k.do(t, m), record.ErrReserved)
		w := record.Write{Kind: k.spec.Name, Key: m.Key, Doc: d}
		good := group(2, k.set("good", 2))
		for _, res := range [][]record.Result{b.apply(t, tokens(k), 1, group(2, w), good), b.load(t, tokens(k), 1, group(2, w))} {
			wantOutcomes(t, res[:1], record.Refused)
			wantError(t, fmt.Sprintf("a group with %s", d), res[0].Err, record.ErrReserved)
		}
		// A swap must not smuggle the field into an existing record.
		same := raw(bson.D{{Key: "_id", Value: "a"}, {Key: record.ReservedField, Value: d.Lookup(record.ReservedField)}})
		res := k.swap(t, swapOf("a", doc("a", 0), same))
		wantOutcomes(t, res, record.Refused)
		wantError(t, fmt.Sprintf("swap for %s", same), res[0].Err, record.ErrReserved)
	}
	state := map[string]record.Record{"a": at("a", 0, guard(1, 1)), "good": at("good", 2, guard(1, 2)), "nested": {Doc: nested}}
	k.wantState(t, state)
}
