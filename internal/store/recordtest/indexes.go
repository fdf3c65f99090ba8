package recordtest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var indexTests = []test{
	{"another index under the name", flavours(indexDiffers)},
	{"outdated token", indexOutdated},
	{"expiry", flavours(indexExpiry)},
	{"what breaks a unique index is named", flavours(indexNamed)},
	{"two unique values change places", flavours(indexSwapped)},
	{"indexes are dropped", flavours(indexDropped)},
	{"options are changed", optionsChanged},
	{"large groups exchange unique values", flavours(indexSwappedLarge)},
}

// expiring returns a shape with a TTL index.
func expiring(seconds int64) record.Shape {
	return record.Shape{Indexes: []bson.Raw{raw(bson.D{
		{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "at", Value: int32(1)}}},
		{Key: "name", Value: "at_1"}, {Key: "expireAfterSeconds", Value: seconds},
	})}}
}

func indexDiffers(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	k := mk(t, uniqueOn("mail"))
	other := k.spec
	other.Shape = uniqueOn("n")
	var spec bson.D
	if err := bson.Unmarshal(other.Shape.Indexes[0], &spec); err != nil {
		t.Fatal(err)
	}
	// The other index has the declared name, but another key.
	spec[2].Value = "mail_1"
	other.Shape.Indexes[0] = raw(spec)
	// This index has the same key and is not unique.
	plain := k.spec
	plain.Shape = record.Shape{Indexes: []bson.Raw{raw(bson.D{
		{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "mail", Value: int32(1)}}}, {Key: "name", Value: "mail_1"},
	})}}
	for name, declared := range map[string]record.KindSpec{"other key": other, "not unique": plain} {
		err := b.Namespace.BuildIndexes(t.Context(), k.tok, declared)
		if !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), "mail_1") {
			t.Errorf("%s: %v, want a conflict that names mail_1", name, err)
		}
		if _, err := b.Namespace.Provision(t.Context(), declared, k.tok.Name); !errors.Is(err, record.ErrConflict) {
			t.Errorf("%s, provisioned: %v, want a conflict", name, err)
		}
	}
	if err := b.Namespace.BuildIndexes(t.Context(), k.tok, k.spec); err != nil {
		t.Errorf("the index that is there: %v", err)
	}
}

// indexOutdated checks that an outdated token builds and changes nothing. Above all, it must not
// create a collection under the old name.
func indexOutdated(t *testing.T, b *bench) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	k := b.managed(t, expiring(60))
	if err := b.Namespace.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: k.tok, To: record.PhysicalName(k.spec.Name, 1)}); err != nil {
		t.Log("left out: the backend does not fence by renaming:", err)
		return
	}
	// Each command must fail without an effect under the old name.
	spec := k.spec
	spec.Shape = uniqueOn("mail")
	_, expired := b.Namespace.Expire(t.Context(), k.tok, map[string]int64{"at_1": 5})
	for name, err := range map[string]error{
		"build":  b.Namespace.BuildIndexes(t.Context(), k.tok, spec),
		"expire": expired,
		"drop":   b.Namespace.Reshape(t.Context(), k.tok, k.spec, []string{"at_1"}),
	} {
		if !errors.Is(err, record.ErrFenced) && !errors.Is(err, record.ErrNotFound) {
			t.Errorf("%s: %v, want ErrFenced or ErrNotFound", name, err)
		}
	}
	if info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name); err != nil || info.Exists {
		t.Errorf("under the old name: %+v, %v", info, err)
	}
	// The index under the new name must be unchanged.
	k.tok.Name = record.PhysicalName(k.spec.Name, 1)
	k.wantExpiry(t, map[string]int64{"at_1": 60})
}

func indexExpiry(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	shape := expiring(60)
	shape.Indexes = append(shape.Indexes, uniqueOn("mail").Indexes...)
	k := mk(t, shape)
	k.wantExpiry(t, map[string]int64{"at_1": 60})
	for _, before := range []int64{60, record.NeverExpires} {
		had, err := b.Namespace.Expire(t.Context(), k.tok, map[string]int64{"at_1": record.NeverExpires, "mail_1": 5, "gone": 5})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int64{"at_1": before}; !maps.Equal(had, want) {
			t.Errorf("the indexes had %v before, want %v", had, want)
		}
		k.wantExpiry(t, map[string]int64{"at_1": record.NeverExpires})
	}
	// Completing the collection must accept the changed seconds and keep them.
	if _, err := b.Namespace.Provision(t.Context(), k.spec, k.tok.Name); err != nil {
		t.Error(err)
	}
	if err := b.Namespace.BuildIndexes(t.Context(), k.tok, k.spec); err != nil {
		t.Error(err)
	}
	k.wantExpiry(t, map[string]int64{"at_1": record.NeverExpires})
	// The deletes can be resumed with other seconds.
	had, err := b.Namespace.Expire(t.Context(), k.tok, map[string]int64{"at_1": 7})
	if want := map[string]int64{"at_1": record.NeverExpires}; err != nil || !maps.Equal(had, want) {
		t.Fatalf("the indexes had %v before, want %v; %v", had, want, err)
	}
	k.wantExpiry(t, map[string]int64{"at_1": 7})
}

// indexDropped checks that Reshape drops only the named indexes, and that they can be built in
// another form.
func indexDropped(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	shape := expiring(60)
	shape.Indexes = append(shape.Indexes, uniqueOn("mail").Indexes...)
	k := mk(t, shape)
	for range 2 {
		if err := b.Namespace.Reshape(t.Context(), k.tok, k.spec, []string{"mail_1", "gone"}); err != nil {
			t.Fatal(err)
		}
	}
	info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
	if err != nil || len(info.Shape.Indexes) != 1 || record.IndexName(info.Shape.Indexes[0]) != "at_1" {
		t.Fatalf("left are %v, %v", info.Shape.Indexes, err)
	}
	hidden := k.spec
	hidden.Shape = record.Shape{Indexes: []bson.Raw{raw(bson.D{
		{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "at", Value: int32(1)}}},
		{Key: "name", Value: "at_1"}, {Key: "expireAfterSeconds", Value: 60}, {Key: "hidden", Value: true},
	})}}
	// An index of the same name with another option is a conflict until it is dropped.
	var conflict *record.IndexConflict
	err = b.Namespace.BuildIndexes(t.Context(), k.tok, hidden)
	if !errors.As(err, &conflict) || conflict.Index != "at_1" || !strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "unique") {
		t.Fatalf("a hidden one: %v, want a conflict that names at_1 and hidden", err)
	}
	if err := b.Namespace.Reshape(t.Context(), k.tok, k.spec, []string{"at_1"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Namespace.BuildIndexes(t.Context(), k.tok, hidden); err != nil {
		t.Error(err)
	}
}

// optionsChanged gives a fixed-name kind another validator and removes it again.
func optionsChanged(t *testing.T, b *bench) {
	if b.NoOptions {
		t.Log("left out: the backend has no options")
		return
	}
	k := b.fixed(t)
	options := func() bson.Raw {
		info, err := b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Shape.Options
	}
	want := k.spec
	want.Shape.Options = raw(bson.D{{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$exists", Value: true}}}}}})
	for range 2 {
		if err := b.Namespace.Reshape(t.Context(), k.tok, want, nil); err != nil {
			t.Fatal(err)
		}
		if diff := record.DifferentOptions(options(), want.Shape.Options); len(diff) > 0 {
			t.Errorf("different: %v", diff)
		}
	}
	// Only the validator may have changed.
	if diff := record.DifferentOptions(options(), nil); len(diff) != 1 || diff[0] != "validator" {
		t.Errorf("from none it differs in %v", diff)
	}
	if err := b.Namespace.Reshape(t.Context(), k.tok, k.spec, nil); err != nil {
		t.Fatal(err)
	}
	if diff := record.DifferentOptions(options(), nil); len(diff) > 0 {
		t.Errorf("without a validator it differs in %v", diff)
	}
}

func (k *kind) wantExpiry(t *testing.T, want map[string]int64) {
	t.Helper()
	info, err := k.b.Namespace.Describe(t.Context(), k.spec, k.tok.Name)
	if err != nil {
		t.Fatal(err)
	}
	if have := record.ExpiryOf(info.Shape); !maps.Equal(have, want) {
		t.Errorf("expiry %v, want %v", have, want)
	}
}

func indexNamed(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	k := mk(t, uniqueOn("mail"))
	batch := []record.GroupWrite{group(1, k.mail("a", "m@x")), group(1, k.mail("b", "n@x")), group(1, k.mail("c", "m@x"))}
	// Both operations must name the index without revealing the value.
	ways := map[string]func() []record.Result{
		"load":  func() []record.Result { return b.load(t, tokens(k), 1, batch...) },
		"apply": func() []record.Result { return b.apply(t, tokens(k), 2, batch...) },
	}
	for _, name := range []string{"load", "apply"} {
		results := ways[name]()
		if results[0].Outcome != record.Applied || results[1].Outcome != record.Applied || results[2].Outcome != record.Refused {
			t.Fatalf("%s: %+v", name, results)
		}
		if err := results[2].Err; !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), "mail_1") || strings.Contains(err.Error(), "m@x") {
			t.Errorf("%s: error %v, want a conflict that names the index and shows no value", name, err)
		}
	}
}

// indexSwapped checks that groups that exchange unique values are applied together. A group alone
// is refused until the value is free.
func indexSwapped(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	k := mk(t, uniqueOn("mail"))
	wantOutcomes(t, b.load(t, tokens(k), 1, group(1, k.mail("a", "m@x")), group(1, k.mail("b", "n@x"))), record.Applied, record.Applied)
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(2, k.mail("a", "n@x")), group(2, k.mail("b", "m@x"))), record.Applied, record.Applied)
	// Alone, the first group is refused until the other record gives up its value.
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(3, k.mail("a", "m@x"))), record.Refused)
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(4, k.mail("a", "m@x")), group(4, k.mail("b", "n@x"))), record.Applied, record.Applied)
}

// indexSwappedLarge checks groups that exchange unique values and are refused alone. Apply must
// write them together, up to the size of a single group, which is more than one transaction of
// small groups gets. The error must name the record with the conflicting value.
func indexSwappedLarge(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no indexes")
		return
	}
	const records, members = 3, 800
	k, l := mk(t, uniqueOn("n")), mk(t)
	toks := tokens(k, l)
	ring := func(v, by int) []record.GroupWrite {
		var gs []record.GroupWrite
		for i := range records {
			ws := []record.Write{k.set(fmt.Sprint(i), (i+by)%records)}
			for m := range members {
				ws = append(ws, l.set(fmt.Sprintf("%d/%d", i, m), v))
			}
			gs = append(gs, group(v, ws...))
		}
		return gs
	}
	for _, g := range ring(1, 0) {
		wantOutcomes(t, b.apply(t, toks, 1, g), record.Applied)
	}
	// Each record takes the value of the next one, so none can be written alone.
	moved := ring(2, 1)
	res := b.apply(t, toks, 1, moved[0])
	wantOutcomes(t, res, record.Refused)
	// The caller needs the holder to write both together.
	if kind, holder, ok := record.HolderOf(res[0].Err); !ok || kind != k.spec.Name || holder != record.StringKey("1") {
		t.Errorf("refused with %v, want an error that names record 1", res[0].Err)
	}
	all, err := b.Namespace.Apply(t.Context(), record.Batch{Tokens: toks, Epoch: 1, Groups: moved, Together: true})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, all, record.Applied, record.Applied, record.Applied)
	k.wantState(t, map[string]record.Record{"0": at("0", 1, guard(1, 2)), "1": at("1", 2, guard(1, 2)), "2": at("2", 0, guard(1, 2))})
}
