package mongostore_test

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// everyValue has a field of every BSON type, deprecated ones included, and values that a
// careless codec changes.
func everyValue(t testing.TB, id any) bson.Raw {
	t.Helper()
	dec := func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return storetest.Raw(t, bson.D{
		{Key: "_id", Value: id},
		{Key: "double", Value: 1.5}, {Key: "string", Value: "a\x00b"}, {Key: "doc", Value: bson.D{{Key: "$x", Value: 1}}},
		{Key: "array", Value: bson.A{1, "two", nil}}, {Key: "bin", Value: bson.Binary{Subtype: 2, Data: []byte{1, 2}}},
		{Key: "undef", Value: bson.Undefined{}}, {Key: "oid", Value: bson.ObjectID{1}}, {Key: "bool", Value: true},
		{Key: "date", Value: bson.DateTime(-1)}, {Key: "null", Value: nil}, {Key: "regex", Value: bson.Regex{Pattern: "a", Options: "i"}},
		{Key: "ptr", Value: bson.DBPointer{DB: "d", Pointer: bson.ObjectID{2}}}, {Key: "js", Value: bson.JavaScript("f()")},
		{Key: "sym", Value: bson.Symbol("s")}, {Key: "scope", Value: bson.CodeWithScope{Code: "f", Scope: bson.D{{Key: "a", Value: 1}}}},
		{Key: "i32", Value: int32(-1)}, {Key: "ts", Value: bson.Timestamp{T: 1, I: 2}}, {Key: "i64", Value: int64(1) << 40},
		{Key: "dec", Value: dec("1.10")}, {Key: "decNaN", Value: dec("NaN")}, {Key: "min", Value: bson.MinKey{}}, {Key: "max", Value: bson.MaxKey{}},
		{Key: "zero", Value: bson.Timestamp{}}, {Key: "", Value: "empty name"}, {Key: "a.b", Value: 1}, {Key: "$dollar", Value: 1},
		{Key: "dup", Value: 1}, {Key: "dup", Value: 2},
	})
}

// TestBytes: every BSON type goes through insert, replacement, scan and read unchanged.
func TestBytes(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	for _, tok := range []record.Token{e.Managed("m"), e.Collection("f", "f", true)} {
		toks := storetest.TokensOf(tok)
		for _, id := range []any{"s", int32(5), int64(6), 7.0, bson.ObjectID{3}, bson.D{{Key: "a", Value: int32(1)}}} {
			doc := everyValue(t, id)
			w := storetest.Put(t, tok.Kind, doc)
			e.Want(e.Load(1, toks, storetest.Group(1, w)), record.Applied)
			e.Want(e.Apply(1, toks, storetest.Group(2, w)), record.Applied)
			e.Want(e.Apply(1, toks, storetest.Group(3, storetest.Remove(tok.Kind, w.Key))), record.Applied)
			e.Want(e.Apply(1, toks, storetest.Group(4, w)), record.Applied)
			e.Want(e.Apply(1, toks, storetest.Group(5, w)), record.Applied)
			snap, err := e.NS.Read(t.Context(), record.ReadRequest{Tokens: toks, Select: []record.Selector{{Kind: tok.Kind, Key: w.Key}}, Guards: true})
			if err != nil || len(snap.Records) != 1 {
				t.Fatalf("read: %d, %v", len(snap.Records), err)
			}
			if !bytes.Equal(snap.Records[0].Doc, doc) {
				t.Errorf("%s: read %s\nwant %s", tok.Kind, snap.Records[0].Doc, doc)
			}
			if g := (record.Guard{Epoch: 1, Version: storetest.Version(5)}); snap.Records[0].Guard != g {
				t.Errorf("guard %v, want %v", snap.Records[0].Guard, g)
			}
		}
		for _, r := range e.Scan(record.ScanRequest{Token: tok, Limit: 2}) {
			id, err := r.Doc.LookupErr("_id")
			if err != nil {
				t.Fatal(err)
			}
			if want := everyValue(t, id); !bytes.Equal(r.Doc, want) {
				t.Errorf("scan: %s\nwant %s", r.Doc, want)
			}
		}
	}
}
