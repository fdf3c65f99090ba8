package conn_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// noOpInterval is how often a shard without work writes by itself, which is what changes
// would wait for.
const noOpInterval = 10 * time.Second

// TestChangesDoNotWaitForAnIdleShard writes to a kind on one shard, while the other has
// nothing to do, and follows it: changes, a proof by position, and the marker of a fence.
func TestChangesDoNotWaitForAnIdleShard(t *testing.T) {
	t.Parallel()
	c := mongotest.Sharded(t)
	ns := storetest.OpenSuite(t, c.URI(), c.Database(t, 0))
	followQuickly(t, ns)
}

// TestChangesDoNotWaitForAnIdleShardWithOrdinaryRoles does the same as a user who may not
// append notes to the oplog.
func TestChangesDoNotWaitForAnIdleShardWithOrdinaryRoles(t *testing.T) {
	t.Parallel()
	server, err := localmongo.Start(t.Context(), localmongo.Options{Shards: 2, Auth: true, Own: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	c := mongotest.OverCluster(t, server)
	db := c.Database(t, 0)
	err = c.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "createUser", Value: "plain"}, {Key: "pwd", Value: "plain"},
		{Key: "roles", Value: bson.A{
			bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: db}},
			bson.D{{Key: "role", Value: "dbAdmin"}, {Key: "db", Value: db}},
		}},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse(server.URI())
	if err != nil {
		t.Fatal(err)
	}
	uri.User = url.UserPassword("plain", "plain")
	ns := storetest.OpenSuite(t, uri.String(), db)
	if err := ns.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	followQuickly(t, ns)
	if !ns.LacksNotes() {
		t.Error("the user could append notes, so that the other way was not tried")
	}
}

func followQuickly(t *testing.T, ns *mongostore.Namespace) {
	t.Helper()
	kind := record.KindSpec{Name: "accounts"}
	tok, err := ns.Provision(t.Context(), kind, record.PhysicalName(kind.Name, 1))
	if err != nil {
		t.Fatal(err)
	}
	start, err := ns.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ns.Watch(t.Context(), start, []record.KindSpec{kind})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(t.Context()))
	var slowest time.Duration
	took := func(what string, do func(), enough func(record.ChangeBatch) bool) {
		t.Helper()
		do()
		start := time.Now()
		for {
			batch, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if enough(batch) {
				break
			}
		}
		slowest = max(slowest, time.Since(start))
		t.Logf("%s after %v", what, time.Since(start).Round(time.Millisecond))
	}
	contains := func(key record.Key, marker string) func(record.ChangeBatch) bool {
		return func(b record.ChangeBatch) bool {
			for _, c := range b.Changes {
				if c.Key == key && c.Marker == marker {
					return true
				}
			}
			return false
		}
	}
	for i := range 5 {
		id := fmt.Sprintf("account-%d", i)
		took("a change", func() {
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: id}})
			if err != nil {
				t.Fatal(err)
			}
			err = ns.Client().Write(t.Context(), record.Tokens{kind.Name: tok}, []record.Mutation{{Kind: kind.Name, Key: record.StringKey(id), Doc: doc}})
			if err != nil {
				t.Fatal(err)
			}
		}, contains(record.StringKey(id), ""))
	}
	var pos record.Position
	took("a position", func() {
		if pos, err = ns.Position(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, func(b record.ChangeBatch) bool { return b.Pos.At.Compare(pos.At) >= 0 })
	to := strings.Replace(tok.Name, "n1", "n2", 1)
	took("the marker of a fence", func() {
		if err := ns.Fence(t.Context(), record.Fence{Token: tok, To: to, Class: record.FenceUUID}); err != nil {
			t.Fatal(err)
		}
	}, contains("", to))
	// All seven would otherwise wait for a no-op, each for half its interval on average.
	if slowest > noOpInterval/3 {
		t.Errorf("the slowest took %v: it waited for a shard's own no-op", slowest)
	}
}
