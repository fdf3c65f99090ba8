package fences_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// abandon leaves a transaction open that has written a document, as a process of a name
// does that is killed. MongoDB keeps it for a minute.
func abandon(t *testing.T, b *storetest.Bench, app, coll string, id any) *mongo.Session {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(b.URI).SetAppName(app))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.EndSession(context.Background())
		if err := c.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	_, err = c.Database(b.Name).Collection(coll).UpdateOne(mongo.NewSessionContext(t.Context(), s),
		bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 7}}}}, options.UpdateOne().SetUpsert(true))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a killed controller was writing must not keep its successor waiting for a minute.
func TestApplyEndsWhatWasAbandoned(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	killed := abandon(t, b, b.App, tok.Name, "a")
	start := time.Now()
	res, err := b.Apply(t.Context(), record.Batch{Tokens: record.Tokens{"things": tok}, Epoch: 1, Groups: []record.GroupWrite{{
		Group: "a", Version: storetest.Version(9), Writes: []record.Write{{Kind: "things", Key: record.StringKey("a"), Doc: storetest.Doc("a", 2)}},
	}}})
	if err != nil || res[0].Outcome != record.Applied {
		t.Fatalf("apply after %s: %v, %v", time.Since(start), res, err)
	}
	t.Logf("applied after %s", time.Since(start))
	if err := killed.CommitTransaction(t.Context()); !conn.HasCode(err, conn.CodeNoSuchTransaction) {
		t.Errorf("commit of what was abandoned: %v", err)
	}
}

// A view fence needs the lock of the whole server: it waits for transactions on any
// collection, so these are what it has to end.
func TestViewFenceEndsTransactionsElsewhere(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	abandon(t, b, "another application", "elsewhere", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // the server ends them after 60
	defer cancel()
	if err := b.Fence(ctx, record.Fence{Class: record.FenceView, Token: tok, To: "orders.n1"}); err != nil {
		t.Fatal(err)
	}
}

// A probe is no fence: it waits for the transactions of others, and ends only those that
// were abandoned by one of ours.
func TestProbeWaitsForTransactions(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	abandon(t, b, b.App, "elsewhere", 1)
	other := abandon(t, b, "another application", "elsewhere", 2)
	committed := make(chan error, 1)
	go func() {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		<-timer.C
		committed <- other.CommitTransaction(t.Context())
	}()
	class, _, err := b.Prepare(t.Context(), tok, "")
	if err != nil || class != record.FenceView {
		t.Errorf("class %q, %v", class, err)
	}
	if err := <-committed; err != nil {
		t.Errorf("commit of another application: %v", err)
	}
}
