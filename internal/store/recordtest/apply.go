package recordtest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var applyTests = []test{
	{"newer wins", flavours(applyNewer)},
	{"tombstones hold", flavours(applyTombstone)},
	{"epochs", flavours(applyEpochs)},
	{"documents byte for byte", flavours(applyBytes)},
	{"an _id behind other fields", flavours(applyIDLast)},
	{"group is atomic", flavours(applyAtomic)},
	{"stale member", flavours(applyStaleMember)},
	{"large group", flavours(applyLargeGroup)},
	{"expect", flavours(applyExpect)},
	{"several expectations", flavours(applyExpectSeveral)},
	{"expectations across managed and fixed kinds", withApp(applyExpectMixed)},
	{"versions between snapshots", flavours(applyNext)},
	{"what the caller has seen", flavours(applySeen)},
	{"what the caller has seen, against a unique index", flavours(applySeenConflict)},
	{"what the caller has seen, against a validator", withApp(applySeenInvalid)},
	{"over a client's record", withClient(applyOverClient)},
	{"over an application's document", withApp(applyOverApp)},
	{"unique index refuses one group", flavours(applyUnique)},
	{"tombstones are not in unique indexes", flavours(applyUniqueTombstones)},
	{"empty batch", flavours(applyEmpty)},
	{"too large for a record", flavours(applyTooLarge)},
}

func applyNewer(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	// The versions also cross a byte boundary, because guards are compared bytewise.
	steps := []struct {
		version int
		want    record.Outcome
	}{
		{5, record.Applied}, {5, record.Stale}, {4, record.Stale}, {1, record.Stale},
		{6, record.Applied}, {5, record.Stale}, {300, record.Applied}, {299, record.Stale}, {255, record.Stale},
	}
	// After each step the target must hold the newest version so far.
	newest := 0
	for _, s := range steps {
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(s.version, k.set("a", s.version))), s.want)
		newest = max(newest, s.version)
		k.wantState(t, map[string]record.Record{"a": at("a", newest, guard(1, newest))})
	}
}

func applyTombstone(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	// Tombstones over a live record, and without one, both keep earlier states out.
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(2, k.set("was", 2))), record.Applied)
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(5, k.set("was", -1)), group(5, k.set("never", -1))), record.Applied, record.Applied)
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(4, k.set("was", 4)), group(4, k.set("never", 4))), record.Stale, record.Stale)
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(5, k.set("was", 5)), group(5, k.set("never", 5))), record.Stale, record.Stale)
	k.wantState(t, map[string]record.Record{"was": at("was", -1, guard(1, 5)), "never": at("never", -1, guard(1, 5))})
	// A later tombstone raises the guard. A later state makes the record live again.
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(6, k.set("was", -1)), group(6, k.set("never", 6))), record.Applied, record.Applied)
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(5, k.set("was", 5)), group(5, k.set("never", -1))), record.Stale, record.Stale)
	k.wantState(t, map[string]record.Record{"was": at("was", -1, guard(1, 6)), "never": at("never", 6, guard(1, 6))})
}

func applyEpochs(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	wantOutcomes(t, b.apply(t, tokens(k), 2, group(100, k.set("a", 1))), record.Applied)
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(500, k.set("a", 2))), record.Stale)
	// The next direction's clock may be behind.
	wantOutcomes(t, b.apply(t, tokens(k), 3, group(1, k.set("a", 3))), record.Applied)
	wantOutcomes(t, b.apply(t, tokens(k), 2, group(900, k.set("a", 4))), record.Stale)
	wantOutcomes(t, b.apply(t, tokens(k), 1<<40, group(1, k.set("a", 5))), record.Applied)
	wantOutcomes(t, b.apply(t, tokens(k), 300, group(7, k.set("a", 6))), record.Stale)
	k.wantState(t, map[string]record.Record{"a": at("a", 5, guard(1<<40, 1))})
}

func applyBytes(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	// Field order, number types and unusual names must survive.
	docs := []bson.Raw{
		raw(bson.D{{Key: "_id", Value: "bare"}}),
		raw(bson.D{{Key: "_id", Value: "order"}, {Key: "z", Value: int32(1)}, {Key: "a", Value: int64(1)}, {Key: "m", Value: 1.0}}),
		raw(bson.D{{Key: "_id", Value: "odd"}, {Key: "", Value: "no name"}, {Key: "a.b", Value: "dot"}, {Key: "$c", Value: "dollar"}, {Key: "null", Value: nil}}),
		raw(bson.D{{Key: "_id", Value: "deep"}, {Key: "d", Value: bson.D{{Key: "$set", Value: bson.A{bson.D{}, bson.A{}, "$x", bson.DateTime(1)}}}}}),
		raw(bson.D{{Key: "_id", Value: "zero time"}, {Key: "ts", Value: bson.Timestamp{}}, {Key: "neg", Value: bson.Binary{Subtype: 0x80, Data: []byte{0}}}}),
		raw(bson.D{{Key: "_id", Value: "big"}, {Key: "b", Value: bytes.Repeat([]byte{7}, 300_000)}}),
	}
	want := map[string]record.Record{}
	for i, d := range docs {
		name := d.Lookup("_id").StringValue()
		w := record.Write{Kind: k.spec.Name, Key: record.StringKey(name), Doc: d}
		// The first write inserts the document, the second replaces it.
		for v := 1; v <= 2; v++ {
			if res := b.apply(t, tokens(k), 1, group(v, w)); res[0].Outcome != record.Applied {
				t.Errorf("document %d, version %d: %s (%v)", i, v, res[0].Outcome, res[0].Err)
			}
		}
		want[name] = record.Record{Doc: d, Guard: guard(1, 2)}
	}
	k.wantState(t, want)
	for _, r := range k.scan(t, record.ScanRequest{Limit: 10}) {
		if !bytes.Equal(r.Doc, want[r.Key.String()].Doc) {
			t.Errorf("scan without guards: %s holds %d bytes, want %d", r.Key, len(r.Doc), len(want[r.Key.String()].Doc))
		}
	}
}

// applyIDLast checks that a backend returns the _id where it was, or first, and everything else
// unchanged. record.Stored makes both forms equal.
func applyIDLast(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	d := raw(bson.D{{Key: "n", Value: int32(1)}, {Key: "_id", Value: "a"}, {Key: "sub", Value: bson.D{{Key: "x", Value: nil}, {Key: "_id", Value: "last"}}}})
	for v := 1; v <= 2; v++ {
		w := record.Write{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: d}
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(v, w)), record.Applied)
		if have := k.all(t)[w.Key].Doc; !bytes.Equal(record.Stored(have), record.Stored(d)) {
			t.Errorf("version %d came back as %s", v, have)
		}
	}
}

func applyAtomic(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	toks := tokens(k, l)
	wantOutcomes(t, b.apply(t, toks, 1, group(1, k.set("a", 1), l.set("a", 1), l.set("b", 1))), record.Applied)
	wantOutcomes(t, b.apply(t, toks, 1, group(2, k.set("a", 2), l.set("a", -1), l.set("c", 2))), record.Applied)
	k.wantState(t, map[string]record.Record{"a": at("a", 2, guard(1, 2))})
	l.wantState(t, map[string]record.Record{
		"a": at("a", -1, guard(1, 2)), "b": at("b", 1, guard(1, 1)), "c": at("c", 2, guard(1, 2)),
	})
}

// applyStaleMember checks that one newer member makes the whole group stale, at any place in the
// group.
func applyStaleMember(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	toks := tokens(k, l)
	// The newer member is the anchor, a member of another kind, and a new record in turn.
	for i, newer := range []string{"a", "b", "c"} {
		name := func(s string) string { return fmt.Sprintf("%d%s", i, s) }
		b.apply(t, toks, 1, group(1, k.set(name("a"), 1), l.set(name("b"), 1)))
		target := k
		if newer == "b" {
			target = l
		}
		b.apply(t, toks, 1, group(9, target.set(name(newer), 9)))
		before, beforeL := k.all(t), l.all(t)
		g := group(5, k.set(name("a"), 5), l.set(name("b"), 5), k.set(name("c"), 5), l.set(name("d"), -1))
		wantOutcomes(t, b.apply(t, toks, 1, g), record.Stale)
		wantSame(t, before, k.all(t))
		wantSame(t, beforeL, l.all(t))
	}
}

func wantSame(t *testing.T, before, after map[record.Key]record.Record) {
	t.Helper()
	for key, r := range after {
		if w, ok := before[key]; !ok || !bytes.Equal(w.Doc, r.Doc) || w.Guard != r.Guard || w.Tombstone != r.Tombstone {
			t.Errorf("%s changed to %s, guard %v", key, r.Doc, r.Guard)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			t.Errorf("%s is gone", key)
		}
	}
}

func applyLargeGroup(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	for v := 1; v <= 2; v++ {
		want := map[string]record.Record{}
		var ws []record.Write
		for i := range 40 {
			name, n := fmt.Sprintf("m%02d", i), v
			if i%10 == 9 {
				n = -1
			}
			ws = append(ws, k.set(name, n))
			want[name] = at(name, n, guard(1, v))
		}
		g := group(v, ws...)
		// The anchor may be anywhere in the group.
		g.Anchor = 17
		wantOutcomes(t, b.apply(t, tokens(k), 1, g), record.Applied)
		k.wantState(t, want)
	}
}

func applyExpect(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	toks := tokens(k)
	expecting := func(v int, g record.Guard, ws ...record.Write) record.GroupWrite {
		gw := group(v, ws...)
		gw.Writes[gw.Anchor].Expect = &g
		return gw
	}
	none := record.Guard{}
	wantOutcomes(t, b.apply(t, toks, 1, expecting(3, none, k.set("a", 3), k.set("a/1", 3))), record.Applied)
	// The caller read the complement before another write: it must read again.
	wantOutcomes(t, b.apply(t, toks, 1, expecting(5, none, k.set("a", 5), k.set("a/1", 5))), record.Changed)
	wantOutcomes(t, b.apply(t, toks, 1, expecting(5, guard(1, 2), k.set("a", 5), k.set("a/1", 5))), record.Changed)
	wantOutcomes(t, b.apply(t, toks, 1, expecting(5, guard(0, 3), k.set("a", 5), k.set("a/1", 5))), record.Changed)
	wantOutcomes(t, b.apply(t, toks, 1, expecting(5, guard(1, 3), k.set("b", 5))), record.Changed)
	k.wantState(t, map[string]record.Record{"a": at("a", 3, guard(1, 3)), "a/1": at("a/1", 3, guard(1, 3))})
	// The expected guard matches, so the group applies. A tombstone has a guard too.
	wantOutcomes(t, b.apply(t, toks, 1, expecting(5, guard(1, 3), k.set("a", -1), k.set("a/1", 5))), record.Applied)
	wantOutcomes(t, b.apply(t, toks, 1, expecting(6, none, k.set("a", 6), k.set("a/1", 6))), record.Changed)
	wantOutcomes(t, b.apply(t, toks, 1, expecting(6, guard(1, 5), k.set("a", 6), k.set("a/1", 6))), record.Applied)
	// The expectation holds, but a member is newer, or the version is old.
	wantOutcomes(t, b.apply(t, toks, 1, group(9, k.set("a/1", 9))), record.Applied)
	wantOutcomes(t, b.apply(t, toks, 1, expecting(7, guard(1, 6), k.set("a", 7), k.set("a/1", 7))), record.Stale)
	wantOutcomes(t, b.apply(t, toks, 1, expecting(4, guard(1, 6), k.set("a", 4))), record.Stale)
	k.wantState(t, map[string]record.Record{"a": at("a", 6, guard(1, 6)), "a/1": at("a/1", 9, guard(1, 9))})
	// Neither expected nor newer: both answers make the caller read again.
	switch r := b.apply(t, toks, 1, expecting(4, none, k.set("a", 4)))[0]; r.Outcome {
	case record.Stale, record.Changed:
	default:
		t.Errorf("outdated and unexpected: %s", r.Outcome)
	}
	k.wantState(t, map[string]record.Record{"a": at("a", 6, guard(1, 6)), "a/1": at("a/1", 9, guard(1, 9))})
}

func applyOverClient(t *testing.T, b *bench) {
	k := b.managed(t)
	toks := tokens(k)
	if err := b.Client.Write(t.Context(), toks, []record.Mutation{
		{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: doc("a", 70), Absent: true},
		{Kind: k.spec.Name, Key: record.StringKey("b"), Doc: doc("b", 71)},
		{Kind: k.spec.Name, Key: record.StringKey("c"), Doc: doc("c", 72)},
	}); err != nil {
		t.Fatalf("write: %v", err)
	}
	k.wantState(t, map[string]record.Record{"a": at("a", 70, record.Guard{}), "b": at("b", 71, record.Guard{}), "c": at("c", 72, record.Guard{})})
	// A record without a guard is lower than any, and a zero Expect means such a record.
	withExpect := group(1, expect(record.Guard{}, k.set("c", 1)))
	wantOutcomes(t, b.apply(t, toks, 1, group(1, k.set("a", 1)), group(1, k.set("b", -1)), withExpect), record.Applied, record.Applied, record.Applied)
	k.wantState(t, map[string]record.Record{"a": at("a", 1, guard(1, 1)), "b": at("b", -1, guard(1, 1)), "c": at("c", 1, guard(1, 1))})
}

func applyOverApp(t *testing.T, b *bench) {
	k := b.fixed(t)
	for _, name := range []string{"a", "b", "c"} {
		if err := b.App.Insert(t.Context(), k.tok.Name, doc(name, 70)); err != nil {
			t.Fatal(err)
		}
	}
	withExpect := group(1, expect(record.Guard{}, k.set("c", 1)))
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(1, k.set("a", 1)), group(1, k.set("b", -1)), withExpect), record.Applied, record.Applied, record.Applied)
	k.wantState(t, map[string]record.Record{"a": at("a", 1, guard(1, 1)), "b": at("b", -1, guard(1, 1)), "c": at("c", 1, guard(1, 1))})
}

// uniqueOn returns a shape with a unique index on a field.
func uniqueOn(field string) record.Shape {
	return record.Shape{Indexes: []bson.Raw{raw(bson.D{
		{Key: "v", Value: int32(2)},
		{Key: "key", Value: bson.D{{Key: field, Value: int32(1)}}},
		{Key: "name", Value: field + "_1"},
		{Key: "unique", Value: true},
	})}}
}

func (k *kind) mail(name, mail string) record.Write {
	return record.Write{Kind: k.spec.Name, Key: record.StringKey(name), Doc: raw(bson.D{{Key: "_id", Value: name}, {Key: "mail", Value: mail}})}
}

func applyUnique(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no unique indexes")
		return
	}
	k := mk(t, uniqueOn("mail"))
	toks := tokens(k)
	wantOutcomes(t, b.apply(t, toks, 1, group(1, k.mail("a", "m@x"))), record.Applied)
	// The conflict is with the first or the last member. In both cases nothing remains.
	res := b.apply(t, toks, 1, group(2, k.mail("b", "n@x")), group(2, k.mail("c", "m@x"), k.mail("d", "o@x")),
		group(2, k.mail("e", "p@x")), group(2, k.mail("f", "q@x"), k.set("a/1", -1), k.mail("g", "m@x")))
	wantOutcomes(t, res, record.Applied, record.Refused, record.Applied, record.Refused)
	for _, i := range []int{1, 3} {
		if !errors.Is(res[i].Err, record.ErrConflict) {
			t.Errorf("refused with %v, want ErrConflict", res[i].Err)
		}
	}
	have := k.all(t)
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": false, "e": true, "f": false, "a/1": false, "g": false} {
		if _, ok := have[record.StringKey(name)]; ok != want {
			t.Errorf("%s is there: %t, want %t", name, ok, want)
		}
	}
	// Once the value is free again, the refused group applies.
	wantOutcomes(t, b.apply(t, toks, 1, group(3, k.set("a", -1))), record.Applied)
	wantOutcomes(t, b.apply(t, toks, 1, group(3, k.mail("c", "m@x"), k.mail("d", "o@x"))), record.Applied)
	// A record may keep its own value when it is replaced.
	wantOutcomes(t, b.apply(t, toks, 1, group(4, k.mail("c", "m@x"))), record.Applied)
	// A refused write must leave the existing record as it is.
	res = b.apply(t, toks, 1, group(5, k.mail("e", "m@x")))
	wantOutcomes(t, res, record.Refused)
	if r := k.all(t)[record.StringKey("e")]; r.Guard != guard(1, 2) {
		t.Errorf("a refused write left guard %v", r.Guard)
	}
}

func applyUniqueTombstones(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	if b.NoIndexes {
		t.Log("left out: the backend has no unique indexes")
		return
	}
	k := mk(t, uniqueOn("mail"))
	for i, name := range []string{"a", "b", "c"} {
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(1, k.mail(name, fmt.Sprint(i)))), record.Applied)
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(2, k.set(name, -1))), record.Applied)
	}
	// The value of a deleted record is free for another record.
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(2, k.set("d", -1)), group(2, k.mail("e", "0"))), record.Applied, record.Applied)
}

func applyEmpty(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 1)
	b.load(t, tokens(k), 1)
	k.wantState(t, nil)
}

// applyTooLarge checks that a group too large for any database is Refused alone and not retried,
// whatever else is in the batch.
func applyTooLarge(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	large := k.set("large", 1)
	large.Doc = filled("large", 1, cmp.Or(b.MaxDocument, 16<<20))
	long := k.set(strings.Repeat("x", record.MaxKey), 1)
	// A tombstone stores its key too, so it has the same limit.
	gone := k.set(strings.Repeat("y", record.MaxKey), -1)
	want := []record.Outcome{record.Applied, record.Refused, record.Refused, record.Refused, record.Applied}
	batch := func(before, after string) []record.GroupWrite {
		return []record.GroupWrite{group(1, k.set(before, 1)), group(1, large), group(1, long), group(1, gone), group(1, k.set(after, 1))}
	}
	for _, res := range [][]record.Result{b.apply(t, tokens(k), 1, batch("a", "b")...), b.load(t, tokens(k), 1, batch("c", "d")...)} {
		wantOutcomes(t, res, want...)
		wantError(t, "a document that is too large", res[1].Err, record.ErrOversize)
		wantError(t, "a key that is too long", res[2].Err, record.ErrLongKey)
		// The message must not contain the document.
		if text := fmt.Sprint(res[1].Err); len(text) > 300 || !strings.Contains(text, fmt.Sprint(cmp.Or(b.MaxDocument, 16<<20))) {
			t.Errorf("the error of a document that is too large is %.300s", text)
		}
	}
	state := map[string]record.Record{}
	for _, name := range []string{"a", "b"} {
		state[name] = at(name, 1, guard(1, 1))
	}
	for _, name := range []string{"c", "d"} {
		state[name] = at(name, 1, k.loaded(guard(1, 1)))
	}
	k.wantState(t, state)
}
