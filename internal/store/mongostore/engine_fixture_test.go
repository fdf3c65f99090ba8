package mongostore

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
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

func (e *engine) position() record.Position {
	e.t.Helper()
	pos, err := e.ns.Position(e.ctx())
	if err != nil {
		e.t.Fatal(err)
	}
	return pos
}

func (e *engine) watch(from record.Position, kinds ...record.KindSpec) record.Stream {
	e.t.Helper()
	s, err := e.ns.Watch(e.t.Context(), from, kinds)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(e.t.Context())); err != nil {
			e.t.Error(err)
		}
	})
	return s
}

// until reads a stream until a change satisfies done, and returns all changes.
func (e *engine) until(s record.Stream, done func(record.Change) bool) []record.Change {
	e.t.Helper()
	var all []record.Change
	for {
		batch, err := s.Next(e.ctx())
		if err != nil {
			e.t.Fatalf("after %v: %v", all, err)
		}
		all = append(all, batch.Changes...)
		if slices.ContainsFunc(batch.Changes, done) {
			return all
		}
	}
}

// broken reads a stream until it ends with ErrBroken.
func (e *engine) broken(s record.Stream) []record.Change {
	e.t.Helper()
	var all []record.Change
	for {
		batch, err := s.Next(e.ctx())
		all = append(all, batch.Changes...)
		if errors.Is(err, record.ErrBroken) {
			if _, again := s.Next(e.ctx()); !errors.Is(again, record.ErrBroken) {
				e.t.Errorf("a broken stream went on: %v", again)
			}
			return all
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
}
