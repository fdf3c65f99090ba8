package recordtest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var provisionTests = []test{
	{"idempotent", flavours(provisionIdempotent)},
	{"describe", flavours(provisionDescribe)},
	{"describe of nothing", provisionNothing},
	{"indexes are complete", flavours(provisionIndexes)},
	{"shape is carried over", withApp(provisionShape)},
	{"existing documents break a unique index", withApp(provisionDuplicates)},
	{"split covers without gaps", flavours(provisionSplit)},
	{"split of every type", withApp(provisionSplitTypes)},
	{"purge", flavours(provisionPurge)},
	{"drop leaves nothing", flavours(provisionDrop)},
}

func provisionIdempotent(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	if k.tok.Kind != k.spec.Name || k.tok.Fixed != k.spec.Fixed || k.tok.Name == "" {
		t.Errorf("token %+v of %+v", k.tok, k.spec)
	}
	k.put(t, "a")
	for range 2 {
		// Another process may repeat the call.
		ns := b.Namespace
		if b.Reopen != nil {
			ns = b.Reopen()
		}
		tok, err := ns.Provision(t.Context(), k.spec, k.tok.Name)
		if err != nil {
			t.Fatal(err)
		}
		if tok != k.tok {
			t.Errorf("token %+v, first %+v", tok, k.tok)
		}
	}
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
}

func provisionDescribe(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a", "b", "c")
	info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
	if err != nil {
		t.Fatal(err)
	}
	if !info.Exists || info.Token != k.tok {
		t.Errorf("exists %t, token %+v, want %+v", info.Exists, info.Token, k.tok)
	}
	size, err := b.Namespace.Size(t.Context(), info.Token)
	if err != nil || size.Records != 3 || size.Bytes <= 0 {
		t.Errorf("size %+v, %v, want 3 records", size, err) // an estimate, but exact without a crash
	}
}

func provisionNothing(t *testing.T, b *bench) {
	info, err := b.Namespace.Describe(t.Context(), record.KindSpec{Name: "nothing"}, record.PhysicalName("nothing", 0))
	if err != nil || info.Exists {
		t.Errorf("describe of nothing: %+v, %v", info, err)
	}
	name, err := b.Namespace.Locate(t.Context(), "00000000000040008000000000000000")
	if err == nil && name != "" {
		t.Errorf("locate of nothing: %q", name)
	}
}

func provisionIndexes(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	k := mk(t)
	b.apply(t, tokens(k), 1, group(1, k.mail("a", "m@x")), group(1, k.mail("b", "n@x")), group(1, k.set("dead", -1)))
	// An index that is declared later is built over the existing records.
	k.spec.Shape = uniqueOn("mail")
	k.spec.Shape.Indexes = append(k.spec.Shape.Indexes, raw(bson.D{
		{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "n", Value: int32(-1)}}}, {Key: "name", Value: "by n"},
	}))
	tok, err := b.Namespace.Provision(t.Context(), k.spec, k.tok.Name)
	// Encrypted records do not show the fields of a late index.
	if b.NoLateIndexes && !k.tok.Fixed {
		if unsupported := new(record.UnsupportedError); !errors.As(err, &unsupported) {
			t.Errorf("provision again: %v, want a refusal", err)
		}
		return
	}
	if err != nil || tok != k.tok {
		t.Fatalf("provision again: %+v, %v", tok, err)
	}
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(1, k.mail("c", "m@x")), group(1, k.mail("d", "o@x"))), record.Refused, record.Applied)
	info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, spec := range info.Shape.Indexes {
		name, _ := spec.Lookup("name").StringValueOK()
		unique, _ := spec.Lookup("unique").BooleanOK()
		have[name] = unique
	}
	if unique, ok := have["mail_1"]; !ok || !unique {
		t.Errorf("indexes %v, want a unique mail_1", have)
	}
	if unique, ok := have["by n"]; !ok || unique {
		t.Errorf("indexes %v, want by n, not unique", have)
	}
	if _, ok := have["_id_"]; ok {
		t.Error("the shape names the index of _id")
	}
}

// provisionShape checks that a target can be made from the shape that Describe returns for a
// source.
func provisionShape(t *testing.T, b *bench) {
	if b.NoOptions {
		t.Log("left out: the backend has no validators")
		return
	}
	shape := record.Shape{Options: raw(bson.D{
		{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$exists", Value: true}}}}},
	})}
	if !b.NoIndexes {
		shape.Indexes = []bson.Raw{raw(bson.D{
			{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "n", Value: int32(1)}}},
			{Key: "name", Value: "n_1"}, {Key: "unique", Value: true},
		})}
	}
	source := b.fixed(t, shape)
	info, err := b.Namespace.Describe(t.Context(), source.spec, source.tok.Name)
	if err != nil {
		t.Fatal(err)
	}
	// Make a target from the described shape and check its validator and index.
	target := b.fixed(t, info.Shape)
	target.insert(t, doc("a", 1))
	if err := b.App.Insert(t.Context(), target.tok.Name, raw(bson.D{{Key: "_id", Value: "x"}})); err == nil {
		t.Error("the validator was not carried over")
	}
	if err := b.App.Insert(t.Context(), target.tok.Name, doc("b", 1)); err == nil && !b.NoIndexes {
		t.Error("the unique index was not carried over")
	}
	// The shape must survive the round trip.
	again, err := b.Namespace.Describe(t.Context(), target.spec, target.tok.Name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Shape.Options, info.Shape.Options) || len(again.Shape.Indexes) != len(info.Shape.Indexes) {
		t.Errorf("shape %s %v, want %s %v", again.Shape.Options, again.Shape.Indexes, info.Shape.Options, info.Shape.Indexes)
	}
}

func provisionDuplicates(t *testing.T, b *bench) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	k := b.fixed(t)
	k.insert(t, k.mail("a", "m@x").Doc, k.mail("b", "m@x").Doc)
	k.spec.Shape = uniqueOn("mail")
	if _, err := b.Namespace.Provision(t.Context(), k.spec, k.tok.Name); err == nil {
		t.Error("a unique index over duplicates was declared complete")
	}
	b.wantDocuments(t, k.tok.Name, k.mail("a", "m@x").Doc, k.mail("b", "m@x").Doc)
}

// wantCovered scans the ranges one by one and compares the result with a scan of the whole kind.
func (k *kind) wantCovered(t *testing.T, n int) {
	t.Helper()
	ranges, err := k.b.Namespace.Split(t.Context(), k.tok, n)
	if err != nil {
		t.Fatalf("split in %d: %v", n, err)
	}
	if len(ranges) == 0 || len(ranges) > n {
		t.Fatalf("%d ranges, want 1 to %d", len(ranges), n)
	}
	if len(ranges[0].From) != 0 || len(ranges[len(ranges)-1].To) != 0 {
		t.Errorf("the ranges begin at %x and end at %x", ranges[0].From, ranges[len(ranges)-1].To)
	}
	// Neighbouring ranges must meet, or records between them would be lost.
	var have []record.Key
	for i, rg := range ranges {
		if i > 0 && !bytes.Equal(rg.From, ranges[i-1].To) {
			t.Errorf("range %d begins at %x, the one before ends at %x", i, rg.From, ranges[i-1].To)
		}
		for _, r := range k.scan(t, record.ScanRequest{Range: rg, Limit: 3}) {
			have = append(have, r.Key)
		}
	}
	var want []record.Key
	for _, r := range k.scan(t, record.ScanRequest{Limit: 1000}) {
		want = append(want, r.Key)
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Errorf("%d ranges cover %d records %v, want %d: %v", len(ranges), len(have), have, len(want), want)
	}
}

func provisionSplit(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.wantCovered(t, 1)
	k.wantCovered(t, 4) // of an empty kind
	k.put(t, awkward...)
	ranges, err := b.Namespace.Split(t.Context(), k.tok, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 5, 16} {
		k.wantCovered(t, n)
	}
	// Earlier ranges must also cover later records, at both ends and in between.
	k.put(t, "\x01", "a1", "a2", "c", "\U0010FFFF")
	seen := 0
	for _, rg := range ranges {
		seen += len(k.scan(t, record.ScanRequest{Range: rg, Limit: 4}))
	}
	if want := len(awkward) + 5; seen != want {
		t.Errorf("ranges made before hold %d records, want %d", seen, want)
	}
}

func provisionSplitTypes(t *testing.T, b *bench) {
	k := b.fixed(t)
	for _, id := range k.types() {
		k.insert(t, raw(bson.D{{Key: "_id", Value: id}}))
	}
	for _, n := range []int{1, 3, 7} {
		k.wantCovered(t, n)
	}
}

func provisionPurge(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 1, group(5, k.set("live", 5)), group(5, k.set("dead", -1)), group(5, k.set("never", -1)))
	for range 2 {
		if err := b.Namespace.Purge(t.Context(), k.tok); err != nil {
			t.Fatal(err)
		}
		k.wantState(t, map[string]record.Record{"live": at("live", 5, guard(1, 5))})
	}
	// The tombstone is gone, so an older version of a later epoch applies.
	wantOutcomes(t, b.apply(t, tokens(k), 2, group(1, k.set("dead", 1))), record.Applied)
	k.wantState(t, map[string]record.Record{"live": at("live", 5, guard(1, 5)), "dead": at("dead", 1, guard(2, 1))})
}

func provisionDrop(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	// Other tests of the topic may have left collections.
	before := map[string]bool{}
	if b.Leftovers != nil {
		for _, name := range b.Leftovers(t) {
			before[name] = true
		}
	}
	k := mk(t, uniqueShape(b)...)
	b.apply(t, tokens(k), 1, group(5, k.mail("live", "m@x")), group(5, k.set("dead", -1)))
	if err := b.Namespace.Drop(t.Context(), k.tok); err != nil {
		t.Fatal(err)
	}
	info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
	if err != nil || info.Exists {
		t.Errorf("after drop: %+v, %v", info, err)
	}
	// Commands with the token of a dropped collection must not succeed on nothing.
	_, err = b.Namespace.Scan(t.Context(), record.ScanRequest{Token: k.tok, Limit: 1})
	wantError(t, "scan of what was dropped", err, record.ErrFenced)
	_, err = b.Namespace.Apply(t.Context(), record.Batch{Tokens: tokens(k), Epoch: 2, Groups: []record.GroupWrite{group(1, k.set("a", 1))}})
	if !errors.Is(err, record.ErrFenced) {
		t.Errorf("apply to what was dropped: %v", err)
	}
	if b.Leftovers != nil {
		for _, name := range b.Leftovers(t) {
			if !before[name] {
				t.Errorf("%s is left behind", name)
			}
		}
	}
	// A new collection under the old name must have none of the old collection's data.
	old := k.tok
	if k.tok, err = b.Namespace.Provision(t.Context(), k.spec, old.Name); err != nil {
		t.Fatal(err)
	}
	if k.tok.ID == old.ID {
		t.Error("a new collection has the identity of the dropped one")
	}
	k.wantState(t, nil)
	wantOutcomes(t, b.load(t, tokens(k), 1, group(1, k.set("dead", 1))), record.Applied)
}
