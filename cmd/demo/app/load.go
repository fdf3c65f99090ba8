package app

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
	"dbcontroller/sample/packages"
)

// hotDocuments is how many of the loaded documents clients write to at most; they are
// kept in memory.
const hotDocuments = 20_000

// loadPackages makes the application's collection, as an application would have: real
// records, an index that is unique, and others. It returns the documents that clients
// may write.
func loadPackages(ctx context.Context, db *mongo.Database, n int, l *ledger) (hot []bson.Raw, err error) {
	docs, err := packages.Load(n)
	if err != nil {
		return nil, err
	}
	c := db.Collection(packagesKind)
	_, err = c.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "name", Value: 1}}, Options: options.Index().SetUnique(true)},
		{Keys: bson.D{{Key: "section", Value: 1}, {Key: "priority", Value: 1}}},
		{Keys: bson.D{{Key: "maintainer.email", Value: 1}}, Options: options.Index().SetSparse(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", packagesKind, err)
	}
	const batch = 1000
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for chunk := range slices.Chunk(docs, batch) {
		g.Go(func() error {
			_, err := c.InsertMany(gctx, chunk, options.InsertMany().SetOrdered(false))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("load %s: %w", packagesKind, err)
	}
	for _, doc := range docs {
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", packagesKind, err)
		}
		l.Load(string(key))
	}
	return docs[:min(len(docs), hotDocuments)], nil
}
