package main

import (
	"context"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
)

// copySharded copies within a cluster of two shards. The source is sharded by a hash of its ids.
func copySharded(ctx context.Context, b *bench, round int) error {
	c, err := start(ctx, localmongo.Options{Shards: 2, CacheGB: 0.5, Own: true, Dir: os.TempDir()})
	if err != nil {
		return err
	}
	defer c.stop()
	// Sharded before the records, since a later move of chunks would take longer than the copy.
	d := b.small("sharded", b.others/2)
	err = c.client.Database("admin").RunCommand(ctx, bson.D{
		{Key: "shardCollection", Value: d.name + "." + kindName}, {Key: "key", Value: bson.D{{Key: "_id", Value: "hashed"}}},
	}).Err()
	if err != nil {
		return err
	}
	if err := d.insert(ctx, c.client.Database(d.name)); err != nil {
		return err
	}
	done, err := b.copyOnce(ctx, copying{data: d, spec: spec{from: c, to: c}, limit: true}, round)
	if err == nil {
		b.against("workload.shards", done.speed, done.limit, "%d records of %d B within a cluster of two shards, through mongos; the source is sharded by a hash of _id. %s It inserts into a collection that is not sharded.", d.records(), b.size, limitIs)
	}
	return err
}
