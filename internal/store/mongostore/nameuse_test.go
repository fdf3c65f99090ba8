package mongostore_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestNameUse: reads and refused writes of a name that a fence left are counted, what keeps the fence
// is not, and the client that is at it is met with its name, driver and address.
func TestNameUse(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
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

	client, err := mongo.Connect(options.Client().ApplyURI(b.URI).SetAppName("old-shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	orders := client.Database(b.Raw.Name()).Collection("orders")
	_, _ = orders.InsertOne(t.Context(), bson.D{})
	_, _ = orders.DeleteOne(t.Context(), bson.D{})
	look("writes", 0, 2)
	_ = orders.FindOne(t.Context(), bson.D{}).Err()
	look("a read", 1, 0)

	if u := meets(t, b, orders); u.Name != "orders" || u.Application != "old-shop" || u.Driver == "" || u.Address != "127.0.0.1" {
		t.Errorf("met %+v", u)
	}
}

// meets has a client read and write a collection all the time, until it is met.
func meets(t *testing.T, b *storetest.Bench, at *mongo.Collection) record.NameUser {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = at.InsertOne(ctx, bson.D{{Key: "secret", Value: "s"}})
			_ = at.FindOne(ctx, bson.D{}).Err()
		}
	}()
	defer func() { cancel(); <-done }()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		users, err := b.NameUsers(t.Context(), []string{at.Name()})
		if err != nil {
			t.Fatal(err)
		}
		if len(users) > 0 {
			return users[0]
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody was met in two minutes")
		}
	}
}

// TestNameUsersBehindValidators: through routers as well, a client that uses a collection behind a
// validator is met with its own name and address, and what a controller does there is not.
func TestNameUsersBehindValidators(t *testing.T) {
	t.Parallel()
	c := mongotest.Sharded(t)
	b := storetest.BenchAt(t, c.URI(), c.Database(t, 0))
	tok := b.Fixed(t, "orders")
	class, restore, err := b.Prepare(t.Context(), tok, record.FenceValidator)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(t.Context(), record.Fence{Class: class, Token: tok, To: "orders.n1", Restore: restore}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"old-shop": true, b.App: false} {
		client, err := mongo.Connect(options.Client().ApplyURI(b.URI).SetAppName(name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Disconnect(context.Background()) }()
		orders := client.Database(b.Raw.Name()).Collection("orders")
		if want {
			if u := meets(t, b, orders); u.Name != "orders" || u.Application != name || u.Driver == "" || u.Address != "127.0.0.1" {
				t.Errorf("met %+v", u)
			}
			continue
		}
		cursor, err := orders.Find(t.Context(), bson.D{}, options.Find().SetBatchSize(1))
		if err != nil {
			t.Fatal(err)
		}
		users, err := b.NameUsers(t.Context(), []string{"orders"})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range users {
			if u.Application != "old-shop" { // whose last command may still run
				t.Errorf("a controller's own cursor: met %+v", u)
			}
		}
		if err := cursor.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
