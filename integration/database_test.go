package integration_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// database is a database that is dropped with the test.
func database(t *testing.T, uri, name string) *mongo.Database {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(uri).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		t.Fatal(err)
	}
	db := c.Database(name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		eventually(ctx, t, "drop "+name, func() error { return drop(ctx, db) })
		if err := c.Disconnect(ctx); err != nil {
			t.Error(err)
		}
	})
	return db
}

// drop drops a database. A killed process leaves transactions open, which would keep it
// for a minute, so those that stand still are ended first.
func drop(ctx context.Context, db *mongo.Database) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	admin := db.Client().Database("admin")
	cursor, err := admin.Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}}}},
		bson.D{{Key: "$match", Value: bson.D{
			{Key: "active", Value: false}, {Key: "transaction.timeOpenMicros", Value: bson.D{{Key: "$gt", Value: 3_000_000}}},
			{Key: "appName", Value: bson.D{{Key: "$in", Value: bson.A{"dbcontroller", "samples"}}}},
		}}},
	})
	if err != nil {
		return err
	}
	var open []bson.Raw
	if err := cursor.All(ctx, &open); err != nil {
		return err
	}
	for _, o := range open {
		err := admin.RunCommand(ctx, bson.D{{Key: "killAllSessionsByPattern", Value: bson.A{bson.D{{Key: "lsid", Value: o.Lookup("lsid")}}}}}).Err()
		if err != nil {
			return err
		}
	}
	return db.Drop(ctx)
}
