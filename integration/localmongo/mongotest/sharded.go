package mongotest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
)

// clusterShards is the number of shards of the shared cluster: the smallest that differs from one.
const clusterShards = 2

const (
	// moveEvery is the shortest pause between two moves of KeepMoving.
	moveEvery = 400 * time.Millisecond
	// moveShare bounds the share of time in which KeepMoving moves: the pause after a move is this
	// many times as long as the move. On a slow machine moves would otherwise take most of it.
	moveShare = 3
	// moveAmong is the number of newest collections that KeepMoving chooses from. Otherwise most
	// moves would go to collections that the test no longer uses.
	moveAmong = 2
)

// Cluster is the sharded cluster of this test binary, with operations for tests. It starts with the
// first test that asks for it, and is never a server from a connection string.
type Cluster struct {
	*localmongo.Server
	client *mongo.Client
}

// Sharded returns the shared cluster. Tests must not stop it, start its balancer or change its
// settings.
func Sharded(t testing.TB) *Cluster {
	t.Helper()
	return OverCluster(t, sharedCluster.start(t, localmongo.Options{Shards: clusterShards, Own: true}))
}

// OverCluster adds the helpers of the shared cluster to a cluster that the test has started itself.
func OverCluster(t testing.TB, s *localmongo.Server) *Cluster {
	t.Helper()
	return &Cluster{Server: s, client: connect(t, s.URI())}
}

// Client returns a client of mongos that is closed when the test ends.
func (c *Cluster) Client() *mongo.Client { return c.client }

// Database returns the name of a database that no other test uses. Its primary shard, which holds
// the unsharded collections, is the given one. The database stays until the cluster ends: to drop
// sharded collections one by one takes longer than some tests.
func (c *Cluster) Database(t testing.TB, primary int) string {
	t.Helper()
	name := DatabasePrefix + randomHex()
	c.run(t, bson.D{{Key: "enableSharding", Value: name}, {Key: "primaryShard", Value: c.Shards()[primary].Name}})
	return name
}

// Direct returns a client of one shard, past mongos, that is closed when the test ends. It may read
// records that by now belong to another shard.
func (c *Cluster) Direct(t testing.TB, shard int) *mongo.Client {
	t.Helper()
	return connect(t, c.Shards()[shard].URI)
}

// ShardHashed shards the collection by the hash of _id.
func (c *Cluster) ShardHashed(t testing.TB, db, collection string) {
	t.Helper()
	c.ShardBy(t, db, collection, bson.D{{Key: "_id", Value: "hashed"}})
}

// ShardRanged shards the collection by _id and splits it at the given ids. The ranges alternate
// among the shards.
func (c *Cluster) ShardRanged(t testing.TB, db, collection string, splits ...any) {
	t.Helper()
	c.ShardBy(t, db, collection, bson.D{{Key: "_id", Value: 1}})
	for _, at := range splits {
		c.run(t, bson.D{{Key: "split", Value: db + "." + collection}, {Key: "middle", Value: bson.D{{Key: "_id", Value: at}}}})
	}
	// After a split all chunks lie on one shard, and the balancer is off.
	for i, chunk := range c.Chunks(t, db, collection) {
		c.Move(t, db, collection, chunk, i%len(c.Shards()))
	}
}

// ShardBy shards the collection by any key.
func (c *Cluster) ShardBy(t testing.TB, db, collection string, key bson.D) {
	t.Helper()
	c.run(t, bson.D{{Key: "shardCollection", Value: db + "." + collection}, {Key: "key", Value: key}})
}

// Chunk is a range of a sharded collection. It moves as a whole.
type Chunk struct {
	Min   bson.Raw `bson:"min"`
	Max   bson.Raw `bson:"max"`
	Shard string   `bson:"shard"`
}

// Chunks returns the ranges of the collection in order.
func (c *Cluster) Chunks(t testing.TB, db, collection string) []Chunk {
	t.Helper()
	chunks, err := c.chunks(t.Context(), db, collection)
	if err != nil {
		t.Fatal(err)
	}
	return chunks
}

func (c *Cluster) chunks(ctx context.Context, db, collection string) ([]Chunk, error) {
	var entry struct {
		UUID bson.Binary `bson:"uuid"`
	}
	config := c.client.Database("config")
	// The entries of chunks refer to their collection by UUID.
	if err := config.Collection("collections").FindOne(ctx, bson.D{{Key: "_id", Value: db + "." + collection}}).Decode(&entry); err != nil {
		return nil, fmt.Errorf("find %s.%s among the sharded collections: %w", db, collection, err)
	}
	cursor, err := config.Collection("chunks").Find(ctx, bson.D{{Key: "uuid", Value: entry.UUID}}, options.Find().SetSort(bson.D{{Key: "min", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("find chunks: %w", err)
	}
	var chunks []Chunk
	if err := cursor.All(ctx, &chunks); err != nil {
		return nil, fmt.Errorf("read chunks: %w", err)
	}
	return chunks, nil
}

// Move moves a chunk to a shard. A chunk that is already there stays.
func (c *Cluster) Move(t testing.TB, db, collection string, chunk Chunk, shard int) {
	t.Helper()
	// A move that outlasts its command continues, and blocks other moves of the shard until it
	// ends. A repeated command joins it.
	err := backoff.Retry(func() error {
		err := c.move(t.Context(), db, collection, chunk, c.Shards()[shard].Name)
		var refused mongo.CommandError
		if errors.As(err, &refused) && refused.Name == "ConflictingOperationInProgress" {
			return err
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		return nil
	}, backoff.WithContext(backoff.NewConstantBackOff(200*time.Millisecond), t.Context()))
	if err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) move(ctx context.Context, db, collection string, chunk Chunk, to string) error {
	return c.client.Database("admin").RunCommand(ctx, bson.D{
		{Key: "moveRange", Value: db + "." + collection},
		{Key: "min", Value: chunk.Min}, {Key: "max", Value: chunk.Max},
		{Key: "toShard", Value: to},
	}).Err()
}

// MovePrimary makes another shard the primary of the database. That moves the database's unsharded
// collections there, each recreated with a new UUID.
func (c *Cluster) MovePrimary(t testing.TB, db string) {
	t.Helper()
	c.run(t, bson.D{{Key: "movePrimary", Value: db}, {Key: "to", Value: c.otherShard(t, db)}})
}

// MoveCollection moves an unsharded collection from its database's primary shard to another one.
// That recreates it with a new UUID.
func (c *Cluster) MoveCollection(t testing.TB, db, collection string) {
	t.Helper()
	resharding.Lock()
	defer resharding.Unlock()
	c.run(t, bson.D{{Key: "moveCollection", Value: db + "." + collection}, {Key: "toShard", Value: c.otherShard(t, db)}})
}

// MoveBack moves an unsharded collection to its database's primary shard. That recreates it with a
// new UUID.
func (c *Cluster) MoveBack(t testing.TB, db, collection string) {
	t.Helper()
	resharding.Lock()
	defer resharding.Unlock()
	c.run(t, bson.D{{Key: "moveCollection", Value: db + "." + collection}, {Key: "toShard", Value: c.primaryShard(t, db)}})
}

// resharding lets one such command run at a time: a cluster refuses a second one, and tests share it.
var resharding sync.Mutex

// Reshard changes the shard key of a sharded collection. That recreates it with a new UUID.
func (c *Cluster) Reshard(t testing.TB, db, collection string, key bson.D) {
	t.Helper()
	resharding.Lock()
	defer resharding.Unlock()
	c.run(t, bson.D{{Key: "reshardCollection", Value: db + "." + collection}, {Key: "key", Value: key}})
}

// Unshard makes a sharded collection an unsharded one, recreated on its database's primary shard.
// MongoDB itself would choose the shard with the least data, and a later MoveCollection could find
// nothing to do.
func (c *Cluster) Unshard(t testing.TB, db, collection string) {
	t.Helper()
	resharding.Lock()
	defer resharding.Unlock()
	c.run(t, bson.D{{Key: "unshardCollection", Value: db + "." + collection}, {Key: "toShard", Value: c.primaryShard(t, db)}})
}

// primaryShard returns the name of the database's primary shard.
func (c *Cluster) primaryShard(t testing.TB, db string) string {
	t.Helper()
	var entry struct {
		Primary string `bson:"primary"`
	}
	if err := c.client.Database("config").Collection("databases").FindOne(t.Context(), bson.D{{Key: "_id", Value: db}}).Decode(&entry); err != nil {
		t.Fatalf("find the primary shard of %s: %v", db, err)
	}
	return entry.Primary
}

// otherShard returns the name of a shard other than the database's primary.
func (c *Cluster) otherShard(t testing.TB, db string) string {
	t.Helper()
	primary := c.primaryShard(t, db)
	for _, s := range c.Shards() {
		if s.Name != primary {
			return s.Name
		}
	}
	t.Fatalf("%s has one shard alone", db)
	return ""
}

// KeepMoving moves random chunks of the database's newest collections between shards, one at a
// time, until stop is called or the test ends. It follows collections that are renamed meanwhile,
// and retries moves that lose against a rename. It skips collections of one chunk. stop returns the
// number of moves.
func (c *Cluster) KeepMoving(t testing.TB, db string) (stop func() int) {
	t.Helper()
	// Not the test's context: it ends before clean-up functions run, and stop must still return a
	// count.
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() {
		moved := 0
		for ctx.Err() == nil {
			began := time.Now()
			// Failed moves are expected, since a test may rename or drop the collection at any
			// time.
			if err := c.moveOne(ctx, db); err == nil {
				moved++
			}
			// Far more often than any balancer, and seldom enough that the cost of the moves does
			// not dominate the test.
			select {
			case <-ctx.Done():
			case <-time.After(max(moveEvery, moveShare*time.Since(began))):
			}
		}
		done <- moved
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	return stop
}

// moveOne moves one random chunk of one of the database's newest sharded collections.
func (c *Cluster) moveOne(ctx context.Context, db string) error {
	cursor, err := c.client.Database("config").Collection("collections").Find(ctx,
		bson.D{{Key: "_id", Value: bson.Regex{Pattern: "^" + db + `\.`}}, {Key: "unsplittable", Value: bson.D{{Key: "$ne", Value: true}}}},
		options.Find().SetSort(bson.D{{Key: "timestamp", Value: -1}}).SetLimit(moveAmong))
	if err != nil {
		return err
	}
	var entries []struct {
		Namespace string `bson:"_id"`
	}
	if err := cursor.All(ctx, &entries); err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("database %s has no sharded collection", db)
	}
	collection := entries[rand.IntN(len(entries))].Namespace[len(db)+1:]
	chunks, err := c.chunks(ctx, db, collection)
	if err != nil {
		return err
	}
	if len(chunks) < 2 {
		return fmt.Errorf("collection %s.%s is not split", db, collection)
	}
	chunk := chunks[rand.IntN(len(chunks))]
	shards := c.Shards()
	to := shards[rand.IntN(len(shards))].Name
	// A move to its own shard would do nothing.
	for to == chunk.Shard {
		to = shards[rand.IntN(len(shards))].Name
	}
	return c.move(ctx, db, collection, chunk, to)
}

// run sends an administrative command to mongos.
func (c *Cluster) run(t testing.TB, cmd bson.D) {
	t.Helper()
	if err := c.client.Database("admin").RunCommand(t.Context(), cmd).Err(); err != nil {
		t.Fatalf("%s: %v", cmd[0].Key, err)
	}
}
