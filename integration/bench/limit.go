package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
)

// limit copies collections with a bare reader that turns each batch it reads into an insert
// command. It returns records per second. No copy through this project can be faster.
func (b *bench) limit(ctx context.Context, from, to *cluster, database string, records int, collections []string) (float64, error) {
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: from.server.URI(), Database: database})
	if err != nil {
		return 0, err
	}
	defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it has only read
	into := scratch("limit")
	defer to.drop(ctx, into)
	target := to.client.Database(into)
	begun := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(b.workers)
	for _, name := range collections {
		// The store splits ranges for real copies too, so both have the same parts.
		info, err := ns.Describe(ctx, record.KindSpec{Name: name, Fixed: true}, name)
		if err != nil {
			return 0, err
		}
		// The workers are shared among several collections by size, so that all finish at about the
		// same time.
		parts := b.workers
		if len(collections) > 1 {
			size, err := ns.Size(ctx, info.Token)
			if err != nil {
				return 0, err
			}
			parts = 1 + int(size.Records)*b.workers/max(records, 1)
		}
		ranges, err := ns.Split(ctx, info.Token, parts)
		if err != nil {
			return 0, err
		}
		for _, r := range ranges {
			g.Go(func() error { return splice(gctx, from.client.Database(database), target, name, r) })
		}
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("limit: %w", err)
	}
	// The counts below are a check and no part of the copy.
	took := time.Since(begun)
	n := 0
	for _, name := range collections {
		has, err := target.Collection(name).EstimatedDocumentCount(ctx)
		if err != nil {
			return 0, err
		}
		n += int(has)
	}
	// A limit that lost records would be a wrong yardstick.
	if n != records {
		return 0, fmt.Errorf("limit: %d of %d records were copied", n, records)
	}
	return float64(records) / took.Seconds(), nil
}

// splice copies one range.
func splice(ctx context.Context, from, to *mongo.Database, name string, r record.Range) error {
	// getMore must run in the session of its find.
	session, err := from.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	// With a deadline in the context the driver sets maxTimeMS, which getMore refuses.
	read := mongo.NewSessionContext(context.WithoutCancel(ctx), session)
	bound := func(c record.Cursor) bson.D {
		return bson.D{{Key: "_id", Value: bson.RawValue{Type: bson.Type(c[0]), Value: c[1:]}}}
	}
	const batch = 2000
	// min and max need the hint, and unlike $gte they compare across types.
	find := bson.D{{Key: "find", Value: name}, {Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "batchSize", Value: batch}}
	if len(r.From) > 0 {
		find = append(find, bson.E{Key: "min", Value: bound(r.From)})
	}
	if len(r.To) > 0 {
		find = append(find, bson.E{Key: "max", Value: bound(r.To)})
	}
	reply, err := from.RunCommand(read, find).Raw()
	for which := "firstBatch"; ; which = "nextBatch" {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		docs := reply.Lookup("cursor", which).Array()
		// Five bytes are an empty array.
		if len(docs) > 5 {
			// The reply's array goes into the command as it is, without decoding.
			insert := bsoncore.NewDocumentBuilder().AppendString("insert", name).AppendBoolean("ordered", false).
				AppendArray("documents", bsoncore.Array(docs)).
				AppendDocument("writeConcern", bsoncore.NewDocumentBuilder().AppendString("w", "majority").Build()).Build()
			if err := to.RunCommand(ctx, bson.Raw(insert)).Err(); err != nil {
				return err
			}
		}
		id := reply.Lookup("cursor", "id").Int64()
		if id == 0 {
			return nil
		}
		reply, err = from.RunCommand(read, bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: name}, {Key: "batchSize", Value: batch}}).Raw()
	}
}
