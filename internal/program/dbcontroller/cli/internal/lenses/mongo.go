package lenses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/transform/lens/lint"
)

// connectTimeout limits the wait for a readable server.
const connectTimeout = 10 * time.Second

// openCollections opens the kinds of the older version's database as samples. It sends only finds,
// aggregations, counts and lists of collections.
func (f *sampleFlags) openCollections(ctx context.Context, out *opened, cfg config.Config, files []lint.File) error {
	at := slices.IndexFunc(cfg.DBs, func(db config.DB) bool { return db.APIVersion == cfg.Kinds[0].Older })
	db, kinds := cfg.DBs[at], oldKinds(files)
	endpoint, ok := databases.Documents(db)
	if !ok {
		return exit.Usagef("%s: dbs[%d] is in %s, and samples are read from MongoDB alone: give files with records instead", cfg.Path, at, db.Backend)
	}
	opts := options.Client().ApplyURI(endpoint.Reveal())
	if opts.Validate() != nil {
		// Do not include the driver's error: it may quote parts of the connection string.
		return exit.Usagef("%s: dbs[%d].mongo.endpoint is no connection string that the driver takes", cfg.Path, at)
	}
	// Majority reads: a sample must not contain writes that a failover may undo.
	opts.SetAppName("dbcontroller lens").SetReadConcern(readconcern.Majority()).SetServerSelectionTimeout(connectTimeout)
	client, err := mongo.Connect(opts)
	if err != nil {
		return fmt.Errorf("%s: connect to %s: %w", cfg.Path, db.Location(), withoutSecret(opts, err))
	}
	out.closers = append(out.closers, disconnect{client})
	there, err := client.Database(db.Database).ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: kinds}}}})
	if err != nil {
		return fmt.Errorf("list collections of %s: %w", db.Location(), withoutSecret(opts, err))
	}
	// A missing collection reads as an empty one, and an empty sample would pass every check.
	for _, kind := range kinds {
		if !slices.Contains(there, kind) {
			return exit.Usagef("%s has no collection %s: correct kinds or dbs[%d] in %s", db.Location(), kind, at, cfg.Path)
		}
		c := client.Database(db.Database).Collection(kind)
		var cursor *mongo.Cursor
		limit := f.limit
		if !slices.ContainsFunc(files, func(l lint.File) bool { return l.From == kind }) {
			limit = 0 // any of them may belong to a record in the sample
		}
		// $sample with a size reads at random; without a limit all records are read anyway.
		if f.random && limit > 0 {
			cursor, err = c.Aggregate(ctx, mongo.Pipeline{{{Key: "$sample", Value: bson.D{{Key: "size", Value: limit}}}}})
		} else {
			cursor, err = c.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)))
		}
		if err != nil {
			return fmt.Errorf("read %s of %s: %w", kind, db.Location(), withoutSecret(opts, err))
		}
		if total, err := c.EstimatedDocumentCount(ctx); err == nil { // the estimate is for display only
			if limit > 0 {
				total = min(total, int64(limit))
			}
			out.parts[kind] = partOf(total)
		}
		s := &collectionSource{name: kind + " of " + db.Location(), cursor: cursor}
		out.closers = append(out.closers, s)
		out.samples = append(out.samples, lint.Sample{Kind: kind, Source: s})
	}
	return nil
}

// collectionSource reads the documents of one collection.
type collectionSource struct {
	name   string
	cursor *mongo.Cursor
}

func (s *collectionSource) Next(ctx context.Context) (bson.Raw, error) {
	if s.cursor.Next(ctx) {
		// The driver reuses the buffer of Current.
		return slices.Clone(s.cursor.Current), nil
	}
	if err := s.cursor.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.name, err)
	}
	return nil, io.EOF
}

// Close closes the cursor on the server, also after the command was interrupted.
func (s *collectionSource) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return s.cursor.Close(ctx)
}

type disconnect struct{ client *mongo.Client }

func (d disconnect) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return d.client.Disconnect(ctx)
}

// withoutSecret removes the password from an error of the driver.
func withoutSecret(opts *options.ClientOptions, err error) error {
	if opts.Auth == nil || opts.Auth.Password == "" || !strings.Contains(err.Error(), opts.Auth.Password) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), opts.Auth.Password, "***"))
}
