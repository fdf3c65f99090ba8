package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// Bench is a namespace of a test's own, and a way around it.
type Bench struct {
	*mongostore.Namespace
	URI string
	Raw *mongo.Database // a client of its own, as another program would have
}

// NewBench returns a bench on a new database.
func NewBench(t *testing.T) *Bench {
	t.Helper()
	uri, name := mongotest.Database(t)
	return BenchAt(t, uri, name)
}

// BenchAt returns a bench on a database of the test's choice.
func BenchAt(t *testing.T, uri, name string) *Bench {
	t.Helper()
	ns, err := mongostore.Open(t.Context(), conn.Config{URI: uri, Database: name, Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(ns.Close(ctx), client.Disconnect(ctx)); err != nil {
			t.Error(err)
		}
	})
	return &Bench{Namespace: ns, URI: uri, Raw: client.Database(name)}
}

// Managed provisions a managed kind with some records a, b, c.
func (b *Bench) Managed(t *testing.T, shape record.Shape) record.Token {
	t.Helper()
	tok, err := b.Provision(t.Context(), record.KindSpec{Name: "things", Shape: shape}, record.PhysicalName("things", 1))
	if err != nil {
		t.Fatal(err)
	}
	toks := record.Tokens{"things": tok}
	for _, name := range []string{"a", "b", "c"} {
		if err := b.Client().Write(t.Context(), toks, []record.Mutation{Creation(name, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	return tok
}

// Fixed makes an application's collection with two documents.
func (b *Bench) Fixed(t *testing.T, name string, cmd ...bson.E) record.Token {
	t.Helper()
	b.Run(t, append(bson.D{{Key: "create", Value: name}}, cmd...))
	b.Run(t, bson.D{{Key: "insert", Value: name}, {Key: "documents", Value: bson.A{
		bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 1}}, bson.D{{Key: "_id", Value: "two"}, {Key: "n", Value: 2}},
	}}})
	info, err := b.Describe(t.Context(), record.KindSpec{Name: name, Fixed: true}, name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Token
}

// Run sends a command as the application would.
func (b *Bench) Run(t *testing.T, cmd bson.D) bson.Raw {
	t.Helper()
	raw, err := b.Raw.RunCommand(t.Context(), cmd).Raw()
	if err != nil {
		t.Fatalf("%s: %v", cmd[0].Key, err)
	}
	return raw
}

// Docs returns the documents of a collection in the order of _id.
func (b *Bench) Docs(t *testing.T, name string) []bson.Raw {
	t.Helper()
	cursor, err := b.Raw.Collection(name).Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var docs []bson.Raw
	if err := cursor.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	return docs
}

// AllNames returns the names of all collections and views.
func (b *Bench) AllNames(t *testing.T) []string {
	t.Helper()
	names, err := b.Raw.ListCollectionNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// NoScratch fails the test if probes left something behind.
func (b *Bench) NoScratch(t *testing.T) {
	t.Helper()
	for _, name := range b.AllNames(t) {
		if strings.HasPrefix(name, conn.ScratchName) || strings.HasPrefix(name, "tmp") {
			t.Errorf("left behind: %s", name)
		}
	}
}

// Doc returns a document with a name as _id and a number.
func Doc(name string, n int) bson.Raw {
	return wire.MustMarshal(bson.D{{Key: "_id", Value: name}, {Key: "n", Value: int32(n)}})
}

// Creation returns a mutation that creates Doc(name, n).
func Creation(name string, n int) record.Mutation {
	return record.Mutation{Kind: "things", Key: record.StringKey(name), Doc: Doc(name, n), Absent: true}
}

// Replacement returns a mutation that replaces a document by Doc(name, n).
func Replacement(name string, n int) record.Mutation {
	return record.Mutation{Kind: "things", Key: record.StringKey(name), Doc: Doc(name, n)}
}

// Removal returns a mutation that deletes a document.
func Removal(name string) record.Mutation {
	return record.Mutation{Kind: "things", Key: record.StringKey(name)}
}

// Next returns a fence of class uuid that renames a collection.
func Next(tok record.Token, to string) record.Fence {
	return record.Fence{Class: record.FenceUUID, Token: tok, To: to}
}

// WantErr fails the test unless err is want.
func WantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

// WaitFor waits for a condition that other goroutines bring about.
func WaitFor(t testing.TB, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(5 * time.Minute) // only a standstill takes as long
	defer limit.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("waited five minutes in vain")
		}
	}
}
