package shards_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/shards"
)

// A lock that somebody takes a moment earlier is his, the rest of the batch is not lost
// by it, and it is taken when he ends. The ring is larger than one commit.
func TestTakenBySomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ring, theirs = 100, 40
		root := memcoord.New()
		foreign := grant(t, root)
		client := root.Client()
		got := false
		client.OnCommit(func(_ []coord.Condition, ops []coord.Op) memcoord.Fault {
			if !got && len(ops) > 1 && strings.HasPrefix(ops[0].Key, "d/shards/") {
				got = true
				op := coord.Op{Key: "d/shards/00040", Value: []byte("other"), Lease: foreign.ID()}
				if _, err := root.Commit(t.Context(), nil, []coord.Op{op}); err != nil {
					t.Error(err)
				}
			}
			return memcoord.Deliver
		})
		ctx, cancel := context.WithCancel(t.Context())
		pool := shards.New(client, shards.Config{Prefix: "d/", ID: "a", Ring: ring})
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()
		for len(pool.Owned()) < ring-1 {
			<-pool.Changes()
		}
		<-time.After(time.Minute)
		if l, wrong := pool.Owned()[theirs]; wrong || !got {
			t.Fatalf("a lock that somebody else holds is owned: %+v", l)
		}
		root.Expire(foreign.ID())
		for len(pool.Owned()) < ring {
			<-pool.Changes()
		}
		l := pool.Owned()[theirs]
		if !holds(t, root, l) {
			t.Errorf("%+v does not hold", l)
		}

		// A lock names its creation: what is written into the key does not end it.
		kv, err := root.Get(t.Context(), l.Key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := root.Commit(t.Context(), nil, []coord.Op{{Key: l.Key, Value: []byte("note"), Lease: kv.Lease}}); err != nil {
			t.Fatal(err)
		}
		if !holds(t, root, l) {
			t.Error("a rewritten key ended the lock")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
