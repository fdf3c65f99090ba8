package main

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
)

const (
	majorityReads = "majority read concern"
	defaultReads  = "majority read concern of the driver, and the store's default, which is linearizable"
)

// storeLatency has one client read and write the same records in turn through the store of a server, and
// with the driver alone.
func storeLatency(ctx context.Context, b *bench, _ int) error {
	const records, reads, writes = 1000, 2000, 500
	database := scratch("store")
	defer b.from.drop(ctx, database)
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: b.from.server.URI(), Database: database})
	if err != nil {
		return err
	}
	defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // scratch
	tok, err := ns.Provision(ctx, record.KindSpec{Name: kindName}, record.PhysicalName(kindName, 1))
	if err != nil {
		return err
	}
	store, toks := ns.Client(), record.Tokens{kindName: tok}
	bare := b.from.client.Database(database).Collection("bare", options.Collection().
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()))
	write := func(i int) error {
		doc, err := bson.Marshal(document(i, b.size))
		if err != nil {
			return err
		}
		return store.Write(ctx, toks, []record.Mutation{{Kind: kindName, Key: record.StringKey(key(i)), Doc: doc}})
	}
	for i := range records {
		if err := write(i); err != nil {
			return err
		}
	}
	docs := make([]any, records)
	for i := range docs {
		docs[i] = document(i, b.size)
	}
	if _, err := bare.InsertMany(ctx, docs); err != nil { // w:majority: what follows reads what a majority has
		return err
	}
	measured := func(ops int, ways [2]func(i int) error) (took [2][]float64, err error) {
		for n := range ops {
			for w := range 2 {
				way := (n + w) % 2
				begun := time.Now()
				if err := ways[way](n * 7 % records); err != nil {
					return took, err
				}
				took[way] = append(took[way], float64(time.Since(begun).Nanoseconds())/1e6)
			}
		}
		return took, nil
	}
	find := func(i int) error { return bare.FindOne(ctx, bson.D{{Key: "_id", Value: key(i)}}).Err() }
	get := func(i int) error { _, err := store.Get(ctx, tok, record.StringKey(key(i))); return err }
	majority, err := measured(reads, [2]func(int) error{find, func(i int) error {
		found, err := store.Select(ctx, record.SelectRequest{Tokens: toks, AsList: true, Select: []record.Selector{{Kind: kindName, Key: record.StringKey(key(i))}}})
		if err == nil && len(found) != 1 {
			err = record.ErrNotFound
		}
		return err
	}})
	if err != nil {
		return err
	}
	byDefault, err := measured(reads, [2]func(int) error{find, get})
	if err != nil {
		return err
	}
	wrote, err := measured(writes, [2]func(int) error{
		func(i int) error {
			_, err := bare.ReplaceOne(ctx, bson.D{{Key: "_id", Value: key(i)}}, document(i, b.size))
			return err
		},
		write,
	})
	if err != nil {
		return err
	}
	strict := bare.Database().Collection(bare.Name(), options.Collection().SetReadConcern(readconcern.Linearizable()))
	linear, err := measured(20, [2]func(int) error{
		func(i int) error { return strict.FindOne(ctx, bson.D{{Key: "_id", Value: key(i)}}).Err() }, get,
	})
	if err != nil {
		return err
	}
	const byKey = "read by key, "
	for _, r := range []struct {
		row  string
		p    int
		took [2][]float64
		what string
	}{
		{"store.read.p50", 50, majority, byKey + majorityReads}, {"store.read.p99", 99, majority, byKey + majorityReads},
		{"store.read.default.p50", 50, byDefault, byKey + defaultReads}, {"store.read.default.p99", 99, byDefault, byKey + defaultReads},
		{"store.read.linearizable", 50, linear, byKey + "read concern linearizable of the driver, and the store's default"},
		{"store.write.p50", 50, wrote, "replacement by key, w:majority"}, {"store.write.p99", 99, wrote, "replacement by key, w:majority"},
	} {
		bare, store := percentile(r.took[0], r.p), percentile(r.took[1], r.p)
		b.figure(r.row, 100*(store/bare-1), "One client, %s: the driver and mongostore's Client in turn, %d times each, records of %d B of a managed kind; last run %.3f and %.3f ms.", r.what, len(r.took[0]), b.size, bare, store)
	}
	b.note("store.read.p50", "Both read what a majority has. Services choose such reads by mongo.reads: majority; by default the store's are linearizable, and above this bar (store.read.default).")
	b.note("store.read.default.p50", "The store's reads are linearizable by default, and so wait for a write of their own, which those that come at the same time share. What it is compared with here may miss what was acknowledged before; store.read.linearizable compares it with a read of the driver that may not.")
	return nil
}
