package mongostore_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
)

// TestScratchIsOurs: what nobody claimed is never dropped, and what a rehearsal that was
// killed has left is.
func TestScratchIsOurs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	uri, name := mongotest.Database(t)
	cfg := mongostore.Config{URI: uri, Database: name}
	db := mongotest.Client(t).Database(name)
	if _, err := db.Collection("orders").InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := mongostore.ClaimScratch(ctx, cfg); err == nil {
		t.Fatal("a database with data was claimed")
	}
	if err := mongostore.DropScratch(ctx, cfg); err == nil {
		t.Fatal("a database that was never claimed was dropped")
	}
	if n, err := db.Collection("orders").CountDocuments(ctx, bson.D{}); n != 1 || err != nil {
		t.Fatalf("%d orders are left, %v", n, err)
	}
	if err := db.Collection("orders").Drop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := mongostore.ClaimScratch(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Collection("left").InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := mongostore.ClaimScratch(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if n, err := db.Collection("left").CountDocuments(ctx, bson.D{}); n != 0 || err != nil {
		t.Fatalf("%d records of an earlier rehearsal are left, %v", n, err)
	}
	for range 2 {
		if err := mongostore.DropScratch(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	names, err := db.ListCollectionNames(ctx, bson.D{})
	if len(names) != 0 || err != nil {
		t.Fatalf("left: %v, %v", names, err)
	}
}
