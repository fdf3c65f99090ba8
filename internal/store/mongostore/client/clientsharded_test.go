package client_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestClientRetriesThroughMongosAcrossAFence: the answer to a write gets lost, and a fence comes
// before the retry. The retry goes to another shard, which knows nothing of the first attempt: by
// then no sharded collection has the name, so mongos asks the primary shard of the database. The
// write must not count as one that had no effect.
func TestClientRetriesThroughMongosAcrossAFence(t *testing.T) {
	t.Parallel()
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	l := new(storetest.LossyNet)
	ns := storetest.OpenNamespace(t, conn.Config{URI: c.URI(), Database: db, AppName: t.Name()}, l)
	other := storetest.OpenNamespace(t, conn.Config{URI: c.URI(), Database: db, AppName: t.Name()}, nil)
	tok, err := ns.Provision(t.Context(), record.KindSpec{Name: "things"}, record.PhysicalName("things", 1))
	if err != nil {
		t.Fatal(err)
	}
	c.ShardRanged(t, db, tok.Name, "m")
	client := ns.Client()
	for i, key := range []string{"a", "z"} { // of the primary shard, and of the other one
		if err := client.Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{storetest.Creation(key, 1)}); err != nil {
			t.Fatal(err)
		}
		to := record.PhysicalName("things", uint64(i+2))
		fenced := make(chan error, 1)
		l.Then(func() {
			fenced <- other.Fence(context.WithoutCancel(t.Context()), record.Fence{Token: tok, To: to, Class: record.FenceUUID})
		})
		l.Lose("updates", 1)
		m := storetest.Replacement(key, 4)
		m.Exists = true
		err := client.Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{m})
		if fence := <-fenced; fence != nil {
			t.Fatal(fence)
		}
		tok.Name = to
		var d struct{ N int64 }
		if err := c.Client().Database(db).Collection(to).FindOne(t.Context(), bson.D{{Key: "_id", Value: key}}).Decode(&d); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v, and n is %d", key, err, d.N)
		if d.N != 4 {
			t.Errorf("%s: n is %d: the first attempt did not run", key, d.N)
		}
		if err != nil && !errors.Is(err, record.ErrUnknown) || errors.Is(err, record.ErrFenced) {
			t.Errorf("%s: it was written, and the error is %v", key, err)
		}
	}
}
