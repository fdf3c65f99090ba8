package recordio_test

import (
	"bytes"
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// everyID has ids of all types, several of each, among them equal-looking ones.
func everyID(t testing.TB) []any {
	dec := func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return []any{
		bson.MinKey{}, nil, math.NaN(), math.Inf(-1), dec("-1E+300"), int32(-5), int64(-4), -3.5, dec("-3.4"), int32(0),
		dec("0.1"), 0.25, int32(1), int64(1) << 53, int64(1)<<53 + 1, 1e17, dec("1E+30"), math.Inf(1),
		"", "A", "a", "a\x00b", "ab", "ä", "\U0001F600", bson.Symbol("sym"),
		bson.D{}, bson.D{{Key: "a", Value: int32(1)}}, bson.D{{Key: "a", Value: 1.5}}, bson.D{{Key: "a", Value: "x"}},
		bson.D{{Key: "b", Value: int32(0)}}, bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: nil}},
		bson.Binary{Data: []byte{}}, bson.Binary{Data: []byte{9}}, bson.Binary{Subtype: 5, Data: []byte{1}}, bson.Binary{Data: []byte{1, 2}},
		bson.ObjectID{1}, bson.ObjectID{2}, false, true, bson.DateTime(-1), bson.DateTime(0), bson.DateTime(1),
		bson.Timestamp{T: 1, I: 5}, bson.Timestamp{T: 2, I: 0},
		bson.DBPointer{DB: "c", Pointer: bson.ObjectID{1}}, bson.JavaScript("a"),
		bson.CodeWithScope{Code: "a", Scope: bson.D{{Key: "x", Value: int32(1)}}}, bson.CodeWithScope{Code: "a\x00", Scope: bson.D{{Key: "x", Value: bson.Symbol("s")}}},
		bson.CodeWithScope{Code: "b", Scope: bson.D{}}, bson.MaxKey{},
	}
}

// TestScanTypes: pages of any size walk all types in the server's order, with and without
// the tombstones of a side collection between them, and ranges between any two ids hold
// just what is between them; also where every third id begins another shard's range.
func TestScanTypes(t *testing.T) {
	t.Parallel()
	ids := everyID(t)
	for name, shard := range map[string]func(c *mongotest.Cluster, db string){
		"replica set": nil,
		"hashed":      func(c *mongotest.Cluster, db string) { c.ShardHashed(t, db, "f") },
		"ranged": func(c *mongotest.Cluster, db string) {
			var splits []any
			for i := 1; i < len(ids); i += 3 {
				splits = append(splits, ids[i])
			}
			c.ShardRanged(t, db, "f", splits...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if shard == nil {
				e := storetest.NewEngine(t)
				scanTypes(e, e.Collection("f", "f", true), ids)
				return
			}
			c := mongotest.Sharded(t)
			e := storetest.EngineIn(t, c.URI(), c.Database(t, 0))
			tok := e.Collection("f", "f", true)
			shard(c, e.NS.Name)
			scanTypes(e, tok, ids)
		})
	}
}

func scanTypes(e *storetest.Engine, tok record.Token, ids []any) {
	t, toks := e.T, storetest.TokensOf(tok)
	var live, dead []record.GroupWrite
	var selectors []record.Selector
	for i, id := range ids {
		w := storetest.Put(t, "f", bson.D{{Key: "_id", Value: id}, {Key: "i", Value: i}})
		live = append(live, storetest.Group(1, w))
		selectors = append(selectors, record.Selector{Kind: "f", Key: w.Key})
		if i%3 == 0 {
			dead = append(dead, storetest.Group(2, storetest.Remove("f", w.Key)))
		}
	}
	e.Want(e.Load(1, toks, live...), slices.Repeat([]record.Outcome{record.Applied}, len(live))...)
	whole := keysOf(e.Scan(record.ScanRequest{Token: tok, Limit: 1000}))
	if len(whole) != len(ids) {
		t.Fatalf("%d records, want %d", len(whole), len(ids))
	}
	if !slices.IsSortedFunc(whole, wire.CompareKeys) {
		t.Errorf("the server's order is another than ours: %v", whole)
	}
	snap, err := e.NS.Read(t.Context(), record.ReadRequest{Tokens: toks, Select: selectors})
	if err != nil || len(snap.Records) != len(ids) {
		t.Errorf("%d records by their keys, want %d: %v", len(snap.Records), len(ids), err)
	}
	e.Want(e.Apply(1, toks, dead...), slices.Repeat([]record.Outcome{record.Applied}, len(dead))...)
	for _, limit := range []int{1000, 1, 2, 3, 7} {
		got := keysOf(e.Scan(record.ScanRequest{Token: tok, Limit: limit, Guards: true}))
		if !slices.Equal(got, whole) {
			t.Errorf("limit %d, with guards: %v\nwant %v", limit, got, whole)
		}
		if n := len(e.Scan(record.ScanRequest{Token: tok, Limit: limit})); n != len(ids)-len(dead) {
			t.Errorf("limit %d: %d live records, want %d", limit, n, len(ids)-len(dead))
		}
	}
	for _, r := range e.Scan(record.ScanRequest{Token: tok, Limit: 4, Guards: true}) {
		if v := r.Guard.Version; r.Tombstone != (v == storetest.Version(2)) || r.Tombstone != (r.Doc == nil) {
			t.Errorf("%s: %+v", r.Key, r)
		}
	}
	for i := range whole {
		for _, end := range []int{i, i + 1, i + 7, len(whole) - 1, len(whole)} {
			if end < i || end > len(whole) {
				continue
			}
			r := record.Range{From: record.Cursor(whole[i])}
			if end < len(whole) {
				r.To = record.Cursor(whole[end])
			}
			got := keysOf(e.Scan(record.ScanRequest{Token: tok, Limit: 5, Range: r, Guards: true}))
			if want := whole[i:end]; !slices.Equal(got, want) {
				t.Errorf("range %d to %d: %v, want %v", i, end, got, want)
			}
		}
		if got := keysOf(e.Scan(record.ScanRequest{Token: tok, Limit: 9, Range: record.Range{To: record.Cursor(whole[i])}, Guards: true})); !slices.Equal(got, whole[:i]) {
			t.Errorf("range to %d: %v, want %v", i, got, whole[:i])
		}
	}
	empty := record.Range{From: record.Cursor(whole[3]), To: record.Cursor(whole[3])}
	if page, err := e.NS.Scan(t.Context(), record.ScanRequest{Token: tok, Range: empty}); err != nil || !page.Done || len(page.Records) != 0 || page.Version.IsZero() {
		t.Errorf("empty range: %+v, %v", page, err)
	}
}

func keysOf(recs []record.Record) []record.Key {
	keys := make([]record.Key, len(recs))
	for i, r := range recs {
		keys[i] = r.Key
	}
	return keys
}

// TestScanBoundary: the first record of the next page is deleted between the pages.
func TestScanBoundary(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	for i := range 6 {
		e.Insert(tok, bson.D{{Key: "_id", Value: i}})
	}
	req := record.ScanRequest{Token: tok, Limit: 3}
	first, err := e.NS.Scan(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Coll(tok).DeleteOne(t.Context(), bson.D{{Key: "_id", Value: 3}}); err != nil {
		t.Fatal(err)
	}
	req.Range.From = first.Next
	rest := e.Scan(req)
	var got []int64
	for _, r := range append(first.Records, rest...) {
		got = append(got, r.Doc.Lookup("_id").AsInt64())
	}
	if want := []int64{0, 1, 2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("scanned %v, want %v", got, want)
	}
}

// TestLarge: documents of 16 MiB, and pages and reads that do not fit one reply.
func TestLarge(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Collection("f", "f", true)
	toks := storetest.TokensOf(tok)
	const most = 16 << 20
	full := func(id string, size int) bson.Raw {
		empty := storetest.Raw(t, bson.D{{Key: "_id", Value: id}, {Key: "b", Value: []byte{}}})
		return storetest.Raw(t, bson.D{{Key: "_id", Value: id}, {Key: "b", Value: bytes.Repeat([]byte{1}, size-len(empty))}})
	}
	var want []bson.Raw
	var sel []record.Selector
	for _, id := range []string{"a", "b", "c"} {
		doc := full(id, most)
		want = append(want, doc)
		w := storetest.Put(t, "f", doc)
		sel = append(sel, record.Selector{Kind: "f", Key: w.Key})
		e.Want(e.Load(1, toks, storetest.Group(1, w)), record.Applied)
		e.Want(e.Apply(1, toks, storetest.Group(2, w)), record.Applied)
	}
	for i := range 40 {
		doc := full("d"+string(rune('a'+i)), 1<<20)
		want = append(want, doc)
		sel = append(sel, record.Selector{Kind: "f", Key: storetest.Put(t, "f", doc).Key})
		e.Want(e.Load(1, toks, storetest.Group(1, storetest.Put(t, "f", doc))), record.Applied)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a deadline must not reach getMore
	defer cancel()
	check := func(name string, recs []record.Record) {
		t.Helper()
		if len(recs) != len(want) {
			t.Fatalf("%s: %d records, want %d", name, len(recs), len(want))
		}
		slices.SortFunc(recs, func(a, b record.Record) int { return wire.CompareKeys(a.Key, b.Key) })
		for i, r := range recs {
			if !bytes.Equal(r.Doc, want[i]) {
				t.Errorf("%s: %s is not as written", name, r.Key)
			}
		}
	}
	check("scan", e.Scan(record.ScanRequest{Token: tok, Limit: 1000}))
	snap, err := e.NS.Read(ctx, record.ReadRequest{Tokens: toks, Select: sel})
	if err != nil {
		t.Fatal(err)
	}
	check("read", snap.Records)
	snap, err = e.NS.Read(ctx, record.ReadRequest{Tokens: toks, Select: []record.Selector{{Kind: "f", Key: record.StringKey(""), Prefix: true}}})
	if err != nil {
		t.Fatal(err)
	}
	check("read of a prefix", snap.Records)

	// With the guard inside, the same document is too large for a managed kind. Its
	// neighbours in the batch are stored.
	m := e.Managed("m")
	small := func(id string) record.Write { return storetest.Put(t, "m", bson.D{{Key: "_id", Value: id}}) }
	tooLarge := storetest.Put(t, "m", full("big", most))
	e.Want(e.Load(1, storetest.TokensOf(m), storetest.Group(1, small("a")), storetest.Group(1, tooLarge), storetest.Group(1, small("b"))), record.Applied, record.Refused, record.Applied)
	e.Want(e.Apply(1, storetest.TokensOf(m), storetest.Group(1, small("c")), storetest.Group(1, tooLarge), storetest.Group(2, small("b"))), record.Applied, record.Refused, record.Applied)
	if n := len(e.Scan(record.ScanRequest{Token: m})); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

// TestKeyOrderOfNumbers checks our order where no index can be asked about it.
func TestKeyOrderOfNumbers(t *testing.T) {
	t.Parallel()
	value := func(v any) bson.RawValue {
		typ, data, err := bson.MarshalValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return bson.RawValue{Type: typ, Value: data}
	}
	ten, err := bson.ParseDecimal128("10.0")
	if err != nil {
		t.Fatal(err)
	}
	same := []any{int32(10), int64(10), 10.0, ten}
	for _, a := range same {
		for _, b := range same {
			if record.CompareValues(value(a), value(b)) != 0 {
				t.Errorf("%T and %T differ", a, b)
			}
		}
	}
	if record.CompareValues(value(int64(1)<<53+1), value(float64(int64(1)<<53))) != 1 {
		t.Error("a double hides the difference of two longs")
	}
}

// TestGuardsOfAKindNobodyAppliedTo: its side collection does not exist, and the server names
// no snapshot for what it reads there.
func TestGuardsOfAKindNobodyAppliedTo(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Collection("f", "f", true)
	if err := e.NS.DB.Collection(conn.GuardsName("f")).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.NS.DB.Collection("f").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}); err != nil {
		t.Fatal(err)
	}
	now, err := e.NS.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := e.NS.Scan(t.Context(), record.ScanRequest{Token: tok, Guards: true, NotBefore: now.At})
	if err != nil || len(page.Records) != 1 || page.Version.Compare(now.At) < 0 {
		t.Errorf("scan: %d records at %s, %v", len(page.Records), page.Version, err)
	}
	snap, err := e.NS.Read(t.Context(), record.ReadRequest{
		Tokens: storetest.TokensOf(tok), Select: []record.Selector{{Kind: "f", Key: record.StringKey("a")}}, Guards: true, NotBefore: now.At,
	})
	if err != nil || len(snap.Records) != 1 || snap.Version.Compare(now.At) < 0 {
		t.Errorf("read: %d records at %s, %v", len(snap.Records), snap.Version, err)
	}
}
