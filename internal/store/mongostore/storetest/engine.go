package storetest

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
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Engine is a namespace of its own on a real server, for tests of the reader, the
// applier and the watcher.
type Engine struct {
	T  testing.TB
	NS *mongostore.Namespace
}

// NewEngine returns an engine on a new database.
func NewEngine(t testing.TB) *Engine {
	t.Helper()
	uri, name := mongotest.Database(t)
	return EngineIn(t, uri, name)
}

// EngineIn is NewEngine for a database of the test's choice.
func EngineIn(t testing.TB, uri, name string) *Engine {
	t.Helper()
	ns, err := mongostore.Open(t.Context(), conn.Config{URI: uri, Database: name, AppName: t.Name(), Log: zaptest.NewLogger(t)})
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
	return &Engine{T: t, NS: ns}
}

// Ctx bounds one wait; it is reached only by a failure.
func (e *Engine) Ctx() context.Context {
	ctx, cancel := context.WithTimeout(e.T.Context(), 30*time.Second)
	e.T.Cleanup(cancel)
	return ctx
}

// Collection creates a physical collection and returns its token.
func (e *Engine) Collection(kind, name string, fixed bool) record.Token {
	e.T.Helper()
	if err := e.NS.DB.CreateCollection(e.T.Context(), name); err != nil {
		e.T.Fatal(err)
	}
	return e.Token(kind, name, fixed)
}

// Managed creates the collection of a managed kind and returns its token.
func (e *Engine) Managed(kind string) record.Token {
	e.T.Helper()
	return e.Collection(kind, record.PhysicalName(kind, 1), false)
}

// Token returns the token of a collection.
func (e *Engine) Token(kind, name string, fixed bool) record.Token {
	e.T.Helper()
	specs, err := e.NS.DB.ListCollectionSpecifications(e.T.Context(), bson.D{{Key: "name", Value: name}})
	if err != nil || len(specs) != 1 {
		e.T.Fatalf("list %s: %d found, %v", name, len(specs), err)
	}
	return record.Token{Kind: kind, Name: name, ID: hex.EncodeToString(specs[0].UUID.Data), Fixed: fixed}
}

// Rename renames a collection, as a fence does.
func (e *Engine) Rename(from, to string) {
	e.T.Helper()
	err := e.NS.Mongo.Database("admin").RunCommand(e.T.Context(), bson.D{
		{Key: "renameCollection", Value: e.NS.Name + "." + from},
		{Key: "to", Value: e.NS.Name + "." + to},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Err()
	if err != nil {
		e.T.Fatal(err)
	}
}

// Coll returns the collection of a token.
func (e *Engine) Coll(tok record.Token) *mongo.Collection { return e.NS.DB.Collection(tok.Name) }

// Insert inserts documents, as an application does.
func (e *Engine) Insert(tok record.Token, docs ...any) {
	e.T.Helper()
	if _, err := e.Coll(tok).InsertMany(e.T.Context(), docs); err != nil {
		e.T.Fatal(err)
	}
}

// Scan returns all records of a request.
func (e *Engine) Scan(req record.ScanRequest) []record.Record {
	e.T.Helper()
	var all []record.Record
	for {
		page, err := e.NS.Scan(e.T.Context(), req)
		if err != nil {
			e.T.Fatal(err)
		}
		if req.Limit > 0 && len(page.Records) > req.Limit {
			e.T.Fatalf("page of %d records, limit %d", len(page.Records), req.Limit)
		}
		all = append(all, page.Records...)
		if page.Done {
			return all
		}
		req.Range.From = page.Next
	}
}

// Apply applies groups of an epoch and returns their results.
func (e *Engine) Apply(epoch uint64, toks record.Tokens, groups ...record.GroupWrite) []record.Result {
	e.T.Helper()
	res, err := e.NS.Apply(e.T.Context(), record.Batch{Tokens: toks, Epoch: epoch, Groups: groups})
	if err != nil {
		e.T.Fatal(err)
	}
	return res
}

// Load loads groups of an epoch and returns their results.
func (e *Engine) Load(epoch uint64, toks record.Tokens, groups ...record.GroupWrite) []record.Result {
	e.T.Helper()
	res, err := e.NS.Load(e.T.Context(), record.Batch{Tokens: toks, Epoch: epoch, Groups: groups})
	if err != nil {
		e.T.Fatal(err)
	}
	return res
}

// Want fails the test unless the results have these outcomes.
func (e *Engine) Want(res []record.Result, want ...record.Outcome) {
	e.T.Helper()
	if len(res) != len(want) {
		e.T.Fatalf("%d results, want %d", len(res), len(want))
	}
	for i, w := range want {
		if res[i].Outcome != w {
			e.T.Errorf("group %d: %s (%v), want %s", i, res[i].Outcome, res[i].Err, w)
		}
	}
}

// TokensOf returns tokens by kind.
func TokensOf(toks ...record.Token) record.Tokens {
	m := make(record.Tokens, len(toks))
	for _, t := range toks {
		m[t.Kind] = t
	}
	return m
}

// Raw returns a value in BSON.
func Raw(t testing.TB, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Version returns the version with this number.
func Version(n byte) record.Version { return record.Version{7: n} }

// Put is a write of a document, keyed by its _id.
func Put(t testing.TB, kind string, v any) record.Write {
	t.Helper()
	doc := Raw(t, v)
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	return record.Write{Kind: kind, Key: key, Doc: doc}
}

// Remove is a write that deletes a record.
func Remove(kind string, key record.Key) record.Write { return record.Write{Kind: kind, Key: key} }

// Group is a group of writes with a version, named by its first key.
func Group(v byte, ws ...record.Write) record.GroupWrite {
	return record.GroupWrite{Group: ws[0].Key.String(), Version: Version(v), Writes: ws}
}

// Position returns the present position.
func (e *Engine) Position() record.Position {
	e.T.Helper()
	pos, err := e.NS.Position(e.Ctx())
	if err != nil {
		e.T.Fatal(err)
	}
	return pos
}

// Watch opens a stream and closes it at the end of the test.
func (e *Engine) Watch(from record.Position, kinds ...record.KindSpec) record.Stream {
	e.T.Helper()
	s, err := e.NS.Watch(e.T.Context(), from, kinds)
	if err != nil {
		e.T.Fatal(err)
	}
	e.T.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(e.T.Context())); err != nil {
			e.T.Error(err)
		}
	})
	return s
}

// Until reads a stream until a change satisfies done, and returns all changes.
func (e *Engine) Until(s record.Stream, done func(record.Change) bool) []record.Change {
	e.T.Helper()
	var all []record.Change
	for {
		batch, err := s.Next(e.Ctx())
		if err != nil {
			e.T.Fatalf("after %v: %v", all, err)
		}
		all = append(all, batch.Changes...)
		if slices.ContainsFunc(batch.Changes, done) {
			return all
		}
	}
}

// Broken reads a stream until it ends with ErrBroken.
func (e *Engine) Broken(s record.Stream) []record.Change {
	e.T.Helper()
	var all []record.Change
	for {
		batch, err := s.Next(e.Ctx())
		all = append(all, batch.Changes...)
		if errors.Is(err, record.ErrBroken) {
			if _, again := s.Next(e.Ctx()); !errors.Is(again, record.ErrBroken) {
				e.T.Errorf("a broken stream went on: %v", again)
			}
			return all
		}
		if err != nil {
			e.T.Fatal(err)
		}
	}
}
