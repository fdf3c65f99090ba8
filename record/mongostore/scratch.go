package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// scratchMark is the collection that marks a database as made by ClaimScratch.
const scratchMark = "dbc_scratch"

// ClaimScratch makes a database one that may be thrown away: a new one, or what an earlier
// scratch database of this name has left, which is dropped first. A database with anything
// else in it is refused, and stays as it is.
func ClaimScratch(ctx context.Context, cfg Config) error {
	return onDatabase(ctx, cfg, func(db *mongo.Database) error {
		if err := dropMarked(ctx, db); err != nil {
			return err
		}
		return db.RunCommand(ctx, bson.D{
			{Key: "create", Value: scratchMark},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
		}).Err()
	})
}

// CheckScratch tries whether a scratch database could be used: whether it may be claimed,
// and what is done in it. It leaves what it finds.
func CheckScratch(ctx context.Context, cfg Config) error {
	err := onDatabase(ctx, cfg, func(db *mongo.Database) error {
		names, err := db.ListCollectionNames(ctx, bson.D{})
		if err == nil {
			err = refuseForeign(names)
		}
		return err
	})
	if err != nil {
		return err
	}
	ns, err := Open(ctx, cfg)
	if err != nil {
		return fmt.Errorf("scratch database %s: %w", cfg.Database, err)
	}
	defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was kept
	return ns.Check(ctx)
}

// DropScratch drops a database that ClaimScratch has made. One that is not there is fine.
func DropScratch(ctx context.Context, cfg Config) error {
	return onDatabase(ctx, cfg, func(db *mongo.Database) error { return dropMarked(ctx, db) })
}

func dropMarked(ctx context.Context, db *mongo.Database) error {
	names, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return err
	}
	if err := refuseForeign(names); err != nil || len(names) == 0 {
		return err
	}
	return db.Drop(ctx)
}

// refuseForeign refuses a database whose collections are not those of a scratch database.
func refuseForeign(names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, scratchName) }) // of a check
	if len(names) > 0 && !slices.Contains(names, scratchMark) {
		return errors.New("it holds collections that are not a rehearsal's: rename or remove the database")
	}
	return nil
}

func onDatabase(ctx context.Context, cfg Config, do func(*mongo.Database) error) error {
	ns, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	db := ns.client.Database(cfg.Database, options.Database().SetWriteConcern(writeconcern.Majority()))
	err = do(db)
	if closeErr := ns.Close(context.WithoutCancel(ctx)); err == nil {
		err = closeErr
	}
	if hasCode(err, codeUnauthorized) {
		err = &privilegeError{fmt.Sprintf("%v: grant the roles readWrite and dbAdmin on %s, which is made and dropped again", errNoPrivilege, cfg.Database), err}
	}
	if err != nil {
		return fmt.Errorf("scratch database %s: %w", cfg.Database, err)
	}
	return nil
}
