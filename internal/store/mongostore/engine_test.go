package mongostore

import (
	"bytes"
	"context"
	"encoding/hex"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/record"
)

// engine is a namespace of its own on a real server, for tests of the reader, the
// applier and the watcher.
type engine struct {
	t  testing.TB
	ns *Namespace
}

func newEngine(t testing.TB) *engine {
	t.Helper()
	uri, name := mongotest.Database(t)
	return engineIn(t, uri, name)
}

// engineIn is newEngine for a database of the test's choice.
func engineIn(t testing.TB, uri, name string) *engine {
	t.Helper()
	ns, err := Open(t.Context(), Config{URI: uri, Database: name, AppName: t.Name(), Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := ns.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &engine{t: t, ns: ns}
}

// ctx bounds one wait; it is reached only by a failure.
func (e *engine) ctx() context.Context {
	ctx, cancel := context.WithTimeout(e.t.Context(), 30*time.Second)
	e.t.Cleanup(cancel)
	return ctx
}

// collection creates a physical collection and returns its token.
func (e *engine) collection(kind, name string, fixed bool) record.Token {
	e.t.Helper()
	if err := e.ns.db.CreateCollection(e.t.Context(), name); err != nil {
		e.t.Fatal(err)
	}
	return e.token(kind, name, fixed)
}

func (e *engine) managed(kind string) record.Token {
	e.t.Helper()
	return e.collection(kind, record.PhysicalName(kind, 1), false)
}

func (e *engine) token(kind, name string, fixed bool) record.Token {
	e.t.Helper()
	specs, err := e.ns.db.ListCollectionSpecifications(e.t.Context(), bson.D{{Key: "name", Value: name}})
	if err != nil || len(specs) != 1 {
		e.t.Fatalf("list %s: %d found, %v", name, len(specs), err)
	}
	return record.Token{Kind: kind, Name: name, ID: hex.EncodeToString(specs[0].UUID.Data), Fixed: fixed}
}

func (e *engine) rename(from, to string) {
	e.t.Helper()
	err := e.ns.client.Database("admin").RunCommand(e.t.Context(), bson.D{
		{Key: "renameCollection", Value: e.ns.name + "." + from},
		{Key: "to", Value: e.ns.name + "." + to},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Err()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *engine) coll(tok record.Token) *mongo.Collection { return e.ns.db.Collection(tok.Name) }

func (e *engine) insert(tok record.Token, docs ...any) {
	e.t.Helper()
	if _, err := e.coll(tok).InsertMany(e.t.Context(), docs); err != nil {
		e.t.Fatal(err)
	}
}

func (e *engine) scan(req record.ScanRequest) []record.Record {
	e.t.Helper()
	var all []record.Record
	for {
		page, err := e.ns.Scan(e.t.Context(), req)
		if err != nil {
			e.t.Fatal(err)
		}
		if req.Limit > 0 && len(page.Records) > req.Limit {
			e.t.Fatalf("page of %d records, limit %d", len(page.Records), req.Limit)
		}
		all = append(all, page.Records...)
		if page.Done {
			return all
		}
		req.Range.From = page.Next
	}
}

func (e *engine) apply(epoch uint64, toks record.Tokens, groups ...record.GroupWrite) []record.Result {
	e.t.Helper()
	res, err := e.ns.Apply(e.t.Context(), record.Batch{Tokens: toks, Epoch: epoch, Groups: groups})
	if err != nil {
		e.t.Fatal(err)
	}
	return res
}

func (e *engine) load(epoch uint64, toks record.Tokens, groups ...record.GroupWrite) []record.Result {
	e.t.Helper()
	res, err := e.ns.Load(e.t.Context(), record.Batch{Tokens: toks, Epoch: epoch, Groups: groups})
	if err != nil {
		e.t.Fatal(err)
	}
	return res
}

func (e *engine) want(res []record.Result, want ...record.Outcome) {
	e.t.Helper()
	if len(res) != len(want) {
		e.t.Fatalf("%d results, want %d", len(res), len(want))
	}
	for i, w := range want {
		if res[i].Outcome != w {
			e.t.Errorf("group %d: %s (%v), want %s", i, res[i].Outcome, res[i].Err, w)
		}
	}
}

func tokensOf(toks ...record.Token) record.Tokens {
	m := make(record.Tokens, len(toks))
	for _, t := range toks {
		m[t.Kind] = t
	}
	return m
}

func raw(t testing.TB, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func version(n byte) record.Version { return record.Version{7: n} }

// put is a write of a document, keyed by its _id.
func put(t testing.TB, kind string, v any) record.Write {
	t.Helper()
	doc := raw(t, v)
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	return record.Write{Kind: kind, Key: key, Doc: doc}
}

func remove(kind string, key record.Key) record.Write { return record.Write{Kind: kind, Key: key} }

func group(v byte, ws ...record.Write) record.GroupWrite {
	return record.GroupWrite{Group: ws[0].Key.String(), Version: version(v), Writes: ws}
}

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
	return raw(t, bson.D{
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
	e := newEngine(t)
	for _, tok := range []record.Token{e.managed("m"), e.collection("f", "f", true)} {
		toks := tokensOf(tok)
		for _, id := range []any{"s", int32(5), int64(6), 7.0, bson.ObjectID{3}, bson.D{{Key: "a", Value: int32(1)}}} {
			doc := everyValue(t, id)
			w := put(t, tok.Kind, doc)
			e.want(e.load(1, toks, group(1, w)), record.Applied)
			e.want(e.apply(1, toks, group(2, w)), record.Applied)
			e.want(e.apply(1, toks, group(3, remove(tok.Kind, w.Key))), record.Applied)
			e.want(e.apply(1, toks, group(4, w)), record.Applied)
			e.want(e.apply(1, toks, group(5, w)), record.Applied)
			snap, err := e.ns.Read(t.Context(), record.ReadRequest{Tokens: toks, Select: []record.Selector{{Kind: tok.Kind, Key: w.Key}}, Guards: true})
			if err != nil || len(snap.Records) != 1 {
				t.Fatalf("read: %d, %v", len(snap.Records), err)
			}
			if !bytes.Equal(snap.Records[0].Doc, doc) {
				t.Errorf("%s: read %s\nwant %s", tok.Kind, snap.Records[0].Doc, doc)
			}
			if g := (record.Guard{Epoch: 1, Version: version(5)}); snap.Records[0].Guard != g {
				t.Errorf("guard %v, want %v", snap.Records[0].Guard, g)
			}
		}
		for _, r := range e.scan(record.ScanRequest{Token: tok, Limit: 2}) {
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
