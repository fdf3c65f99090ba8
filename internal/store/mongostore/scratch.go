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

	"dbcontroller.dev/internal/store/mongostore/conn"
)

// scratchMark is the collection that marks a database as created by ClaimScratch.
const scratchMark = "dbc_scratch"

// ClaimScratch creates a database that may be dropped at any time. It first drops an earlier
// scratch database with this name. It refuses, and does not change, a database with other
// collections.
func ClaimScratch(ctx context.Context, cfg conn.Config) error {
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

// CheckScratch checks whether a scratch database could be used: whether ClaimScratch would accept
// it, and whether the server and privileges suffice. It changes no existing data.
func CheckScratch(ctx context.Context, cfg conn.Config) error {
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
	// Check like the rehearsal itself, with the same login and options.
	ns, err := Open(ctx, cfg)
	if err != nil {
		return fmt.Errorf("scratch database %s: %w", cfg.Database, err)
	}
	defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was kept
	return ns.Check(ctx)
}

// DropScratch drops a database that ClaimScratch created. A missing database is no error.
func DropScratch(ctx context.Context, cfg conn.Config) error {
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

// refuseForeign refuses a database that has collections but no scratch mark.
func refuseForeign(names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, conn.ScratchName) }) // left by a check
	if len(names) > 0 && !slices.Contains(names, scratchMark) {
		return errors.New("it has collections that do not belong to a rehearsal: rename or remove the database")
	}
	return nil
}

func onDatabase(ctx context.Context, cfg conn.Config, do func(*mongo.Database) error) error {
	ns, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	db := ns.Mongo.Database(cfg.Database, options.Database().SetWriteConcern(writeconcern.Majority()))
	err = do(db)
	if closeErr := ns.Close(context.WithoutCancel(ctx)); err == nil {
		err = closeErr
	}
	// The message must name this database, and not the one of the version.
	if conn.HasCode(err, conn.CodeUnauthorized) {
		err = &conn.PrivilegeError{Text: fmt.Sprintf("%v: grant the roles readWrite and dbAdmin on %s, which is created and dropped again", conn.ErrNoPrivilege, cfg.Database), Err: err}
	}
	if err != nil {
		return fmt.Errorf("scratch database %s: %w", cfg.Database, err)
	}
	return nil
}
