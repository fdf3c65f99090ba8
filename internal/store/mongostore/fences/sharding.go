package fences

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// RefuseShardKey refuses a collection that is sharded by another key than _id.
func (n *shards) RefuseShardKey(ctx context.Context, c *conn.Collection, refused func(string) error) error {
	key, err := n.shardKey(ctx, c.Name)
	if err != nil || key == nil {
		return err
	}
	elems, err := key.Elements()
	if err != nil || len(elems) != 1 || elems[0].Key() != "_id" {
		return refused("it is sharded by " + key.String() + "; only the shard key _id finds every record by its key")
	}
	return nil
}

// shardKey returns the shard key of a collection, nil if it is not sharded.
func (n *shards) shardKey(ctx context.Context, name string) (bson.Raw, error) {
	keys, err := n.sharded.Ask(ctx, name)
	return keys[name], err
}

// shardKeysThere is shardKeys for any server. Only a cluster has shard keys.
func (n *shards) shardKeysThere(ctx context.Context, names []string) (map[string]bson.Raw, error) {
	mongos, err := n.IsMongos(ctx)
	if err != nil || !mongos {
		return nil, err
	}
	return n.shardKeys(ctx, names...)
}

// shardKeys returns the shard keys of the sharded collections among names.
func (n *shards) shardKeys(ctx context.Context, names ...string) (map[string]bson.Raw, error) {
	full := make([]string, len(names))
	for i, name := range names {
		full[i] = n.Name + "." + name
	}
	// One find in the config database covers all collections.
	cursor, err := n.Mongo.Database("config").Collection("collections").Find(ctx, bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: full}}},
		{Key: "unsplittable", Value: bson.D{{Key: "$ne", Value: true}}}, // not sharded; listed because it was moved
	})
	var found []struct {
		Name string   `bson:"_id"`
		Key  bson.Raw `bson:"key"`
	}
	if err == nil {
		err = conn.All(ctx, cursor, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("read shard keys: %w", err)
	}
	keys := map[string]bson.Raw{}
	for _, f := range found {
		if name, ok := strings.CutPrefix(f.Name, n.Name+"."); ok {
			keys[name] = f.Key
		}
	}
	return keys, nil
}

// Shard keys in the form of commands.
const (
	byHash  = `{_id: "hashed"}`
	byRange = "{_id: 1}"
)

func spelled(key bson.Raw) string {
	if key == nil {
		return ""
	}
	if hashed, _ := key.Lookup("_id").StringValueOK(); hashed == "hashed" {
		return byHash
	}
	return byRange
}

// Sharding returns how a kind's collection is sharded, and whether that can lose records.
func (n *shards) Sharding(ctx context.Context, kind record.KindSpec, name string) (record.Sharding, error) {
	s := record.Sharding{Name: n.Name + "." + name}
	fail := func(err error) (record.Sharding, error) {
		return s, fmt.Errorf("sharding of %s: %w", s.Name, conn.WithPrivilege(err))
	}
	var err error
	if s.Cluster, err = n.IsMongos(ctx); err != nil {
		return fail(err)
	}
	key, err := n.shardKey(ctx, name)
	if err != nil {
		return fail(err)
	}
	// A hash spreads MaxKey like any other id; a range does not.
	if s.Key = spelled(key); s.Key == byRange {
		s.Loses = maxKeyAdvice
	}
	if s.MaxKey, err = n.holdsMaxKey(ctx, name, kind.Fixed); err != nil {
		return fail(err)
	}
	return s, nil
}

// A range of ids ends before its upper bound, and MaxKey bounds the last range of a collection that
// is sharded by range. When MongoDB (8.2, SERVER-121533) moves that range, it leaves a record with
// the _id MaxKey on the old shard, where mongos no longer looks for it. The record vanishes for
// everybody, without a change event. It reappears in its old state when the range returns. Copies,
// comparisons and guards cannot protect such a record, so no switch begins while there is one. With
// a hashed shard key the problem does not exist, because the hash of MaxKey is an ordinary number.

// maxKeyAdvice is the advice for a record with the _id MaxKey that can be lost.
const maxKeyAdvice = "MongoDB leaves such a record behind, unseen, when the last range moves to another shard: " +
	"give it another _id (if it is not visible, move that range back first), or shard by the hash of _id"

// unmovable returns the collections that are sharded by range and hold a record with the _id
// MaxKey.
func (n *shards) unmovable(ctx context.Context, toks []record.Token) ([]record.Hindrance, error) {
	mongos, err := n.IsMongos(ctx)
	if err != nil || !mongos {
		return nil, err
	}
	names := make([]string, len(toks))
	for i, tok := range toks {
		names[i] = tok.Name
	}
	// One query for all kinds: this runs before each switch.
	keys, err := n.shardKeys(ctx, names...)
	if err != nil {
		return nil, err
	}
	var found []record.Hindrance
	for _, tok := range toks {
		// Hashed and unsharded collections cannot lose the record.
		if spelled(keys[tok.Name]) != byRange {
			continue
		}
		holds, err := n.holdsMaxKey(ctx, tok.Name, tok.Fixed)
		if err != nil {
			return nil, err
		}
		if holds {
			found = append(found, record.Hindrance{Kind: tok.Kind, What: fmt.Sprintf("the record with the _id MaxKey in %s.%s, which is sharded by %s: %s", n.Name, tok.Name, byRange, maxKeyAdvice)})
		}
	}
	return found, nil
}

// maxKeyShards bounds the records that are read from the end of the order. Each shard can have one
// with the _id MaxKey.
const maxKeyShards = 100

// holdsMaxKey reports whether a collection holds a record with the _id MaxKey, including one that
// stayed on a shard when its range moved. It cannot see a shard without any range of the
// collection. Tombstones of managed kinds do not count.
func (n *shards) holdsMaxKey(ctx context.Context, name string, fixed bool) (bool, error) {
	raw, err := n.DB.RunCommand(ctx, bson.D{
		{Key: "find", Value: name},
		// A condition on _id would go only to the shard that owns the range.
		{Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "sort", Value: bson.D{{Key: "_id", Value: -1}}},
		{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}, {Key: wire.GuardField, Value: 1}}},
		{Key: "limit", Value: maxKeyShards}, {Key: "singleBatch", Value: true},
		// Only this level returns documents that no longer belong to their shard.
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: "available"}}},
	}).Raw()
	if err != nil {
		return false, fmt.Errorf("look for the _id MaxKey: %w", err)
	}
	r, err := wire.ParseReply(raw)
	if err != nil {
		return false, fmt.Errorf("look for the _id MaxKey: %w", err)
	}
	holds := false
	err = wire.Each(r.Docs, func(doc []byte) error {
		l, err := wire.LayoutOf(doc, !fixed)
		if err == nil && l.ID.Type == bson.TypeMaxKey {
			_, tombstone := l.Guard(doc)
			holds = holds || !tombstone
		}
		return err
	})
	return holds, err
}
