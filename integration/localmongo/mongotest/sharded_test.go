package mongotest_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/localmongo/mongotest"
)

func TestChunksLieWhereTheyArePutAndKeepTheirRecordsWhenTheyMove(t *testing.T) {
	c := mongotest.Sharded(t)
	db := c.Database(t, 1)
	c.ShardHashed(t, db, "hashed")
	c.ShardRanged(t, db, "ranged", 100, 200, 300)
	docs := make([]any, 400)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: i}}
	}
	for _, name := range []string{"hashed", "ranged", "unsharded"} {
		if _, err := c.Client().Database(db).Collection(name).InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
	}
	count := func(client *mongo.Client, name string) int64 {
		t.Helper()
		n, err := client.Database(db).Collection(name).CountDocuments(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, second := c.Direct(t, 0), c.Direct(t, 1)
	for _, name := range []string{"hashed", "ranged"} {
		if count(first, name) < 50 || count(second, name) < 50 {
			t.Errorf("%s: %d and %d records on the shards, want both to have many", name, count(first, name), count(second, name))
		}
	}
	if n := count(second, "unsharded"); n != 400 {
		t.Errorf("the primary shard has %d unsharded records, want all 400", n)
	}
	stop := c.KeepMoving(t, db)
	for range 50 {
		for _, name := range []string{"hashed", "ranged"} {
			if n := count(c.Client(), name); n != 400 {
				t.Fatalf("%s has %d records while chunks move, want 400", name, n)
			}
		}
	}
	t.Logf("%d chunks moved", stop())
}
