package mongostore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

// TestShardedConformance runs the suite through mongos: on collections that are sharded by
// the hash of _id, by _id itself, and not at all. In the first two chunks move from shard
// to shard all the time.
//
// The hashed ones pass all of it, but for what needs indexes that are unique by something
// else than _id, which the server refuses for sharded collections, and the statistics of
// "provision", which count records twice while they move. Of the others only those topics
// run that can depend on the difference: for ranges, which shard has the records of a page or
// of a prefix; for unsharded collections, what waits for the shard that has nothing to
// do, and all that changes collections, which mongos does by a protocol of its own even
// there, and indexes.
func TestShardedConformance(t *testing.T) {
	t.Parallel()
	var movers, moved atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d chunks moved", moved.Load())
		if movers.Load() > 0 && moved.Load() == 0 {
			t.Error("no chunk moved meanwhile")
		}
	})
	for name, tc := range map[string]struct {
		key    bson.D
		topics []string
	}{
		"hashed": {bson.D{{Key: "_id", Value: "hashed"}}, []string{
			"scan", "read", "apply", "converge", "load", "commits", "changes", "fence", "fixed", "client", "swap", "once", "label"}},
		"ranged":    {bson.D{{Key: "_id", Value: 1}}, []string{"scan", "read"}},
		"unsharded": {nil, []string{"commits", "changes", "fence", "fixed", "provision", "indexes", "once", "label"}},
	} {
		t.Run(name, func(t *testing.T) {
			recordtest.ExerciseTopics(t, func(t *testing.T) recordtest.Backend {
				c := mongotest.Sharded(t)
				db := c.Database(t, 0)
				ns := storetest.OpenSuite(t, c.URI(), db)
				app := application{c.Client().Database(db)}
				b := recordtest.Backend{
					Namespace: ns,
					Client:    ns.Client(),
					Reopen:    func() record.Namespace { return storetest.OpenSuite(t, c.URI(), db) },
					// An unsharded collection is on one shard, and so are its transactions.
					SeveralLogs: tc.key != nil,
					App:         app,
					Leftovers:   app.names,
				}
				if tc.key != nil {
					b.Namespace = sharding{ns, c, tc.key}
					b.Reopen = func() record.Namespace { return sharding{storetest.OpenSuite(t, c.URI(), db), c, tc.key} }
					b.NoIndexes = true
					b.NoMaxKey = name == "ranged" // TestMaxKeyStaysBehind; TestScanTypes has it where nothing moves
					movers.Add(1)
					stop := c.KeepMoving(t, db)
					t.Cleanup(func() { moved.Add(int64(stop())) })
				}
				return b
			}, tc.topics...)
		})
	}
}

// sharding is a namespace whose collections are sharded as soon as they are provisioned,
// as an administrator would do it beforehand.
type sharding struct {
	*mongostore.Namespace
	cluster *mongotest.Cluster
	key     bson.D
}

// codeChunkBoundary is what the server answers where a collection is split already.
const codeChunkBoundary = 656452

func (s sharding) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	tok, err := s.Namespace.Provision(ctx, kind, name)
	if err != nil {
		return tok, err
	}
	admin := s.cluster.Client().Database("admin")
	err = admin.RunCommand(ctx, bson.D{{Key: "shardCollection", Value: s.Name + "." + name}, {Key: "key", Value: s.key}}).Err()
	if err != nil || s.key[0].Value == "hashed" {
		return tok, err
	}
	for _, at := range []string{"b", "n"} {
		split := bson.D{{Key: "split", Value: s.Name + "." + name}, {Key: "middle", Value: bson.D{{Key: "_id", Value: at}}}}
		// A split loses against a chunk that moves at that moment.
		err := backoff.Retry(func() error {
			if err := admin.RunCommand(ctx, split).Err(); !conn.HasCode(err, codeChunkBoundary) {
				return err
			}
			return nil
		}, conn.NewBackoff(ctx, 20*time.Second))
		if err != nil {
			return tok, err
		}
	}
	return tok, nil
}
