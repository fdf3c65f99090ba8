package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
)

const (
	majorityReads = "majority read concern"
	defaultReads  = "majority read concern of the driver, and the store's default, which is linearizable"
)

// storeLatency makes one client read and write the same records in turn, through a server's store
// and with the driver alone.
//
// Two identical clients of the driver differ by a few percent, and the faster one stays the faster
// one as long as both are connected. The driver therefore has two clients, one connected before the
// store's client and one after it. The store is compared with both together.
func storeLatency(ctx context.Context, b *bench, _ int) error {
	records := b.calls
	reads, writes := records, records
	database := scratch("store")
	defer b.from.drop(ctx, database)
	var clients [2]*mongo.Client
	var err error
	defer func() {
		for _, c := range clients {
			if c != nil {
				_ = c.Disconnect(context.WithoutCancel(ctx)) // used only here
			}
		}
	}()
	if clients[0], err = mongo.Connect(options.Client().ApplyURI(b.from.server.URI())); err != nil {
		return err
	}
	if err := clients[0].Ping(ctx, nil); err != nil { // connects now, before the store's client
		return err
	}
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: b.from.server.URI(), Database: database})
	if err != nil {
		return err
	}
	defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // scratch
	// The store connects here, between the driver's two clients.
	tok, err := ns.Provision(ctx, record.KindSpec{Name: kindName}, record.PhysicalName(kindName, 1))
	if err != nil {
		return err
	}
	if clients[1], err = mongo.Connect(options.Client().ApplyURI(b.from.server.URI())); err != nil {
		return err
	}
	store, toks := ns.Client(), record.Tokens{kindName: tok}
	bare := func(client int, concern *readconcern.ReadConcern) *mongo.Collection {
		return clients[client].Database(database).Collection(fmt.Sprint("bare", client), options.Collection().
			SetReadConcern(concern).SetWriteConcern(writeconcern.Majority()))
	}
	changed := int64(0)
	// With change, the new content differs. A replacement by equal content is not written to the
	// journal, and would look too fast.
	content := func(i int, change bool) bson.D {
		doc := document(i, b.size)
		if change {
			changed++
			// Same size, other content.
			doc[slices.IndexFunc(doc, func(e bson.E) bool { return e.Key == "at" })].Value = changed
		}
		return doc
	}
	write := func(i int, change bool) error {
		doc, err := bson.Marshal(content(i, change))
		if err != nil {
			return err
		}
		return store.Write(ctx, toks, []record.Mutation{{Kind: kindName, Key: record.StringKey(key(i)), Doc: doc}})
	}
	for i := range records {
		if err := write(i, false); err != nil {
			return err
		}
	}
	docs := make([]any, records)
	for i := range docs {
		docs[i] = document(i, b.size)
	}
	for client := range clients {
		if _, err := bare(client, readconcern.Majority()).InsertMany(ctx, docs); err != nil { // w:majority, so that later majority reads find the records
			return err
		}
	}
	// measured runs an operation of the driver's two clients and of the store, in random order so
	// that none has an advantage.
	measured := func(ops int, driver func(client, i int) error, own func(i int) error) (took [3][]float64, err error) {
		ways, rng := [3]func(int) error{func(i int) error { return driver(0, i) }, func(i int) error { return driver(1, i) }, own}, rand.New(rand.NewPCG(1, 1))
		// n*7 spreads successive operations over the records.
		for n := range ops {
			for _, way := range rng.Perm(len(ways)) {
				begun := time.Now()
				if err := ways[way](n * 7 % records); err != nil {
					return took, err
				}
				took[way] = append(took[way], float64(time.Since(begun).Nanoseconds())/1e6)
			}
		}
		return took, nil
	}
	finds := func(concern *readconcern.ReadConcern) func(client, i int) error {
		return func(client, i int) error {
			return bare(client, concern).FindOne(ctx, bson.D{{Key: "_id", Value: key(i)}}).Err()
		}
	}
	get := func(i int) error { _, err := store.Get(ctx, tok, record.StringKey(key(i))); return err }
	majority, err := measured(reads, finds(readconcern.Majority()), func(i int) error {
		found, err := store.Select(ctx, record.SelectRequest{Tokens: toks, AsList: true, Select: []record.Selector{{Kind: kindName, Key: record.StringKey(key(i))}}})
		// FindOne fails without a record, so this read must fail as well.
		if err == nil && len(found) != 1 {
			err = record.ErrNotFound
		}
		return err
	})
	if err != nil {
		return err
	}
	byDefault, err := measured(reads, finds(readconcern.Majority()), get)
	if err != nil {
		return err
	}
	var wrote [2][3][]float64 // the same and another content
	for way := range wrote {
		change := way == 1
		if wrote[way], err = measured(writes, func(client, i int) error {
			_, err := bare(client, readconcern.Majority()).ReplaceOne(ctx, bson.D{{Key: "_id", Value: key(i)}}, content(i, change))
			return err
		}, func(i int) error { return write(i, change) }); err != nil {
			return err
		}
	}
	// Few, because each linearizable read of the driver waits for a write of its own.
	linear, err := measured(20, finds(readconcern.Linearizable()), get)
	if err != nil {
		return err
	}
	same := wrote[0]
	written := fmt.Sprintf("replacement by key, w:majority (the driver's clients by themselves %.3f and %.3f ms; with what is there already, for which nothing is journaled, %.3f ms and %.3f through the store)",
		percentile(wrote[1][0], 50), percentile(wrote[1][1], 50), percentile(slices.Concat(same[0], same[1]), 50), percentile(same[2], 50))
	const byKey = "read by key, "
	for _, r := range []struct {
		row  string
		p    int
		took [3][]float64
		what string
	}{
		{"store.read.p50", 50, majority, byKey + majorityReads}, {"store.read.p99", 99, majority, byKey + majorityReads},
		{"store.read.default.p50", 50, byDefault, byKey + defaultReads}, {"store.read.default.p99", 99, byDefault, byKey + defaultReads},
		{"store.read.linearizable", 50, linear, byKey + "read concern linearizable of the driver, and the store's default"},
		{"store.write.p50", 50, wrote[1], written}, {"store.write.p99", 99, wrote[1], "replacement by key, w:majority"},
	} {
		bare, store := percentile(slices.Concat(r.took[0], r.took[1]), r.p), percentile(r.took[2], r.p)
		b.figure(r.row, 100*(store/bare-1), "One client at a time, %s: two clients of the driver, taken together, and mongostore's Client in turn, %d times each, records of %d B of a managed kind; last run %.3f and %.3f ms.", r.what, len(r.took[2]), b.size, bare, store)
	}
	b.note("store.read.p50", "Both read what a majority has. Services choose such reads by mongo.reads: majority; by default the store's are linearizable, and above this bar (store.read.default).")
	b.note("store.read.default.p50", "The store's reads are linearizable by default, and so wait for a write of their own, which those that come at the same time share. What it is compared with here may miss what was acknowledged before; store.read.linearizable compares it with a read of the driver that may not.")
	return nil
}
