package recordtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

var scanTests = []test{
	{"empty kind", flavours(scanEmpty)},
	{"pages in name order", flavours(scanOrder)},
	{"keys only", flavours(scanKeysOnly)},
	{"tombstones only with guards", flavours(scanGuards)},
	{"not before", flavours(scanNotBefore)},
	{"keys of every type", withApp(scanMixedTypes)},
	{"cursors are keys", withApp(scanCursors)},
	{"no gaps under change", flavours(scanUnderChange)},
}

func scanEmpty(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	// An empty kind still has a snapshot with a version.
	page, err := b.Namespace.Scan(t.Context(), record.ScanRequest{Token: k.tok, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Records) != 0 || !page.Done {
		t.Errorf("page of an empty kind: %d records, done %t", len(page.Records), page.Done)
	}
	if page.Version.IsZero() {
		t.Error("a page without a version")
	}
}

// awkward holds names with an order and prefixes that are easy to get wrong.
var awkward = []string{
	"", " ", "$where", ".", "a", "a.b", "a.b.c", "a/b", "a/b/c", "a0", "aa", "ab", "b", "Z",
	"a*b", "a\\b", "(a", "a\x01", "aé", "ä", "日本", "\U0001F600", "a\uffff", "~",
}

func scanOrder(t *testing.T, _ *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, awkward...)
	// The order of names is the order of their bytes.
	want := slices.Sorted(slices.Values(awkward))
	for _, limit := range []int{1000, 7, 1} {
		var have []string
		for _, r := range k.scan(t, record.ScanRequest{Limit: limit}) {
			name, _ := r.Key.Name()
			have = append(have, name)
			if r.Kind != k.spec.Name {
				t.Errorf("record of kind %q", r.Kind)
			}
			if id, _ := record.KeyOfDoc(r.Doc); id != r.Key {
				t.Errorf("key %s, document %s", r.Key, r.Doc)
			}
		}
		if !slices.Equal(have, want) {
			t.Errorf("limit %d: scanned %q, want %q", limit, have, want)
		}
	}
}

func scanKeysOnly(t *testing.T, _ *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a", "b", "c")
	recs := k.scan(t, record.ScanRequest{Limit: 2, KeysOnly: true})
	if len(recs) != 3 {
		t.Fatalf("%d records, want 3", len(recs))
	}
	for i, name := range []string{"a", "b", "c"} {
		want := raw(bson.D{{Key: "_id", Value: name}})
		if recs[i].Key != record.StringKey(name) || !bytes.Equal(recs[i].Doc, want) {
			t.Errorf("record %d: %s with %s, want %s alone", i, recs[i].Key, recs[i].Doc, want)
		}
	}
}

func scanGuards(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 3, group(5, k.set("a", 1)), group(6, k.set("b", -1)), group(7, k.set("c", 2)), group(8, k.set("d", -1)))
	k.wantState(t, map[string]record.Record{
		"a": at("a", 1, guard(3, 5)), "b": at("b", -1, guard(3, 6)),
		"c": at("c", 2, guard(3, 7)), "d": at("d", -1, guard(3, 8)),
	})
	// Small pages show cursors that stop at tombstones.
	for _, limit := range []int{1, 3} {
		// Tombstones must have their place among the records.
		var names string
		for _, r := range k.scan(t, record.ScanRequest{Limit: limit, Guards: true}) {
			names += r.Key.String()
		}
		if names != "abcd" {
			t.Errorf("limit %d: scanned %q with guards, want abcd", limit, names)
		}
	}
	for _, r := range k.scan(t, record.ScanRequest{Limit: 1}) {
		if r.Doc == nil || r.Tombstone || !r.Guard.IsZero() {
			t.Errorf("scan without guards returned %+v", r)
		}
	}
	if n := len(k.scan(t, record.ScanRequest{Limit: 1})); n != 2 {
		t.Errorf("%d live records, want 2", n)
	}
}

// scanNotBefore takes a position and then scans, like a copy. A page older than the position would
// hide a change that no stream delivers again.
func scanNotBefore(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	reader := b.Namespace
	if b.Reopen != nil {
		reader = b.Reopen()
	}
	for v := 1; v <= 5; v++ {
		b.apply(t, tokens(k), 1, group(v, k.set("a", v)))
		pos := b.now(t)
		// Scans with and without guards may take different paths.
		req := record.ScanRequest{Token: k.tok, Limit: 10, NotBefore: pos.At, Guards: v%2 == 0}
		page, err := reader.Scan(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) != 1 || number(t, page.Records[0].Doc) != v {
			t.Fatalf("scan does not see state %d: %v", v, page.Records)
		}
		if page.Version.Compare(pos.At) < 0 {
			t.Errorf("page of %s, older than the position %s taken before", page.Version, pos.At)
		}
	}
}

// types returns the ids of everyType that a kind accepts.
func (k *kind) types() []any {
	return slices.DeleteFunc(everyType(), func(id any) bool {
		_, text := id.(string)
		return k.spec.Fixed && k.b.TextKeys && !text
	})
}

// everyType returns ids of every possible type.
func everyType() []any {
	dec := func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			panic(err) // cannot fail: the suite's own literals
		}
		return d
	}
	return []any{
		bson.MinKey{}, nil, int32(-3), int32(0), int64(7), 7.5, dec("7.25"), dec("1E+30"), int64(1) << 60, 1e300,
		"", "7", "a", "b", bson.D{}, bson.D{{Key: "a", Value: int32(1)}}, bson.D{{Key: "a", Value: "x"}}, bson.D{{Key: "b", Value: 0.5}},
		bson.Binary{Data: []byte{1}}, bson.Binary{Subtype: 4, Data: bytes.Repeat([]byte{9}, 16)},
		bson.ObjectID{1}, bson.ObjectID{2}, false, true, bson.DateTime(-5), bson.DateTime(5),
		bson.Timestamp{T: 1, I: 2}, bson.Timestamp{T: 2, I: 1}, bson.MaxKey{},
	}
}

// idsOf returns the ids that a kind accepts and a scan returns.
func idsOf(k *kind) []any {
	return slices.DeleteFunc(k.types(), func(id any) bool { return k.b.NoMaxKey && id == bson.MaxKey{} })
}

func scanMixedTypes(t *testing.T, b *bench) {
	k := b.fixed(t)
	want := map[record.Key]bson.Raw{}
	for i, id := range idsOf(k) {
		d := raw(bson.D{{Key: "_id", Value: id}, {Key: "i", Value: int32(i)}})
		if err := b.App.Insert(t.Context(), k.tok.Name, d); err != nil {
			t.Fatalf("insert %s: %v", d, err)
		}
		key, err := record.KeyOfDoc(d)
		if err != nil {
			t.Fatal(err)
		}
		want[key] = d
	}
	var order []record.Key
	for _, limit := range []int{1000, 1, 2, 5} {
		var have []record.Key
		for _, r := range k.scan(t, record.ScanRequest{Limit: limit}) {
			have = append(have, r.Key)
			if !bytes.Equal(r.Doc, want[r.Key]) {
				t.Errorf("%s: document %s, want %s", r.Key, r.Doc, want[r.Key])
			}
		}
		if len(have) != len(want) {
			t.Errorf("limit %d: %d records, want %d", limit, len(have), len(want))
		}
		// The first scan defines the order, and the others must agree.
		if order == nil {
			order = have
		}
		if !slices.Equal(have, order) {
			t.Errorf("limit %d: order %v, want %v", limit, have, order)
		}
	}
}

// scanCursors checks the common order of all backends. A range between any two keys, existing or
// not, holds the records in between. So a cursor of one backend is valid in another.
func scanCursors(t *testing.T, b *bench) {
	k := b.fixed(t)
	var keys []record.Key // every second one has a record
	for _, id := range idsOf(k) {
		key, err := record.KeyOfDoc(raw(bson.D{{Key: "_id", Value: id}}))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	// Sort the keys in the order of the contract, and compare each scan with it.
	compare := func(a, b record.Key) int { return record.Cursor(a).Compare(record.Cursor(b)) }
	slices.SortFunc(keys, compare)
	there := func(from, to int) (found []record.Key) {
		for i := from; i < to; i++ {
			if i%2 == 0 {
				found = append(found, keys[i])
			}
		}
		return found
	}
	for _, key := range there(0, len(keys)) {
		if err := b.App.Insert(t.Context(), k.tok.Name, raw(bson.D{{Key: "_id", Value: key.Value()}})); err != nil {
			t.Fatalf("insert %s: %v", key, err)
		}
	}
	now := b.now(t).At
	scan := func(from, to int, r record.Range) {
		t.Helper()
		var have []record.Key
		for _, rec := range k.scan(t, record.ScanRequest{Limit: 3, Range: r, NotBefore: now}) {
			have = append(have, rec.Key)
		}
		if want := there(from, to); !slices.Equal(have, want) {
			t.Errorf("from %d to %d: scanned %v, want %v", from, to, have, want)
		}
	}
	for i, key := range keys {
		// Each key is once the end and once the beginning of a range.
		scan(0, i, record.Range{To: record.Cursor(key)})
		scan(i, len(keys), record.Range{From: record.Cursor(key)})
		for _, j := range []int{i, min(i+1, len(keys)-1), min(i+6, len(keys)-1)} {
			scan(i, j, record.Range{From: record.Cursor(key), To: record.Cursor(keys[j])})
		}
	}
	for rest, done := (record.Range{}), false; !done; {
		page, err := b.Namespace.Scan(t.Context(), record.ScanRequest{Token: k.tok, Limit: 2, Range: rest, NotBefore: now})
		if err != nil {
			t.Fatal(err)
		}
		// A cursor must be behind the last record of its page.
		if last := page.Records[len(page.Records)-1].Key; !page.Done && compare(last, record.Key(page.Next)) >= 0 {
			t.Errorf("the page after %s begins at %s", last, record.Key(page.Next))
		}
		rest, done = record.Range{From: page.Next}, page.Done
	}
}

func scanUnderChange(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	var stable []string
	for i := range 60 {
		stable = append(stable, fmt.Sprintf("k%03d-stable", i))
	}
	k.put(t, stable...)

	ctx, cancel := context.WithCancel(bounded(t))
	var writers errgroup.Group
	changing := make(chan struct{})
	writers.Go(func() error {
		for v := 2; ctx.Err() == nil; v++ {
			var gs []record.GroupWrite
			for i := v % 7; i < 60; i += 7 {
				n := v
				if v%2 == 0 {
					n = -1
				}
				gs = append(gs, group(v, k.set(fmt.Sprintf("k%03d-volatile", i), n)), group(v, k.set(stable[i], v)))
			}
			if _, err := b.Namespace.Apply(context.WithoutCancel(ctx), record.Batch{Tokens: tokens(k), Epoch: 1, Groups: gs}); err != nil {
				return err
			}
			if v == 3 {
				close(changing)
			}
		}
		return nil
	})
	// Scan while records appear and vanish: the stable ones must all be found.
	// The writers must run before the first scan.
	<-changing
	for _, limit := range []int{5, 13} {
		last, seen := "", 0
		for _, r := range k.scan(t, record.ScanRequest{Limit: limit, Guards: limit == 5}) {
			name, _ := r.Key.Name()
			if name <= last {
				t.Errorf("%s after %s", name, last)
			}
			last = name
			if _, ok := slices.BinarySearch(stable, name); ok {
				seen++
			}
		}
		if seen != len(stable) {
			t.Errorf("limit %d: %d of %d records that were always there", limit, seen, len(stable))
		}
	}
	cancel()
	if err := writers.Wait(); err != nil {
		t.Errorf("apply: %v", err)
	}
}
