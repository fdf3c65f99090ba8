package mongostore

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/record"
)

// TestNameUse: reads and refused writes of a name that a fence left are counted, what keeps the fence
// is not, and the client that is at it is met with its name, driver and address.
func TestNameUse(t *testing.T) {
	b := newBench(t)
	tok := b.fixed(t, "orders")
	f := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n1"}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	was := record.NameCount{}
	look := func(what string, reads, writes int64) {
		t.Helper()
		is, err := b.NameCount(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		// How many reads the server counts for one command is its own affair.
		if r, w := is.Reads-was.Reads-1, is.Writes-was.Writes; r < reads || reads == 0 && r > 0 || w != writes {
			t.Errorf("%s: %d reads, %d writes, want %d, %d", what, r, w, reads, writes)
		}
		was = is
	}
	is, err := b.NameCount(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	was = is
	for range 3 {
		if _, err := b.Uphold(t.Context(), f, []string{tok.ID}); err != nil {
			t.Fatal(err)
		}
		_, _ = b.Describe(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders") // refused
	}
	look("what keeps the fence", 0, 0)

	client, err := mongo.Connect(options.Client().ApplyURI(b.uri).SetAppName("old-shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	orders := client.Database(b.raw.Name()).Collection("orders")
	_, _ = orders.InsertOne(t.Context(), bson.D{})
	_, _ = orders.DeleteOne(t.Context(), bson.D{})
	look("writes", 0, 2)
	_ = orders.FindOne(t.Context(), bson.D{}).Err()
	look("a read", 1, 0)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = orders.InsertOne(ctx, bson.D{{Key: "secret", Value: "s"}})
			_ = orders.FindOne(ctx, bson.D{}).Err()
		}
	}()
	defer func() { cancel(); <-done }()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		users, err := b.NameUsers(t.Context(), []string{"orders"})
		if err != nil {
			t.Fatal(err)
		}
		if len(users) > 0 {
			if u := users[0]; u.Name != "orders" || u.Application != "old-shop" || u.Driver == "" || u.Address != "127.0.0.1" {
				t.Errorf("met %+v", u)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody was met in two minutes")
		}
	}
}
