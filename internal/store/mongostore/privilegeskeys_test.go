package mongostore_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// forgedKeyState: a server reads with its own role which key encrypts the records, and refuses what
// another login has written there.
func forgedKeyState(t *testing.T, db *mongo.Database, srv *mongostore.Namespace) {
	t.Helper()
	owner := record.Owner{Deployment: "services/shop/deployments/x", Version: "v1"}
	keys, err := sealed.NewKeys("a001", sealed.Key{Name: "a001", Bytes: make([]byte, sealed.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	// Each is a process that has just started.
	started := func() *sealed.Sealer {
		return sealed.New("v1", func() *sealed.Keys { return keys }, identity.NotesOf(srv, owner))
	}
	state, err := started().First(nil)
	if err != nil {
		t.Fatal(err)
	}
	mark, err := bson.Marshal(identity.Mark{Format: identity.Format, Namespace: "n", Keys: state})
	if err != nil {
		t.Fatal(err)
	}
	owners := db.Collection(fences.OwnerCollection)
	if _, err := owners.InsertOne(t.Context(), fences.OwnerDoc{ID: fences.OwnerID(owner), Format: fences.OwnerFormat, Deployment: owner.Deployment, Version: owner.Version, Rev: 1, Mark: mark}); err != nil {
		t.Fatal(err)
	}
	if err := started().Check(t.Context()); err != nil {
		t.Errorf("what a controller wrote: %v", err)
	}
	forge := bson.D{{Key: "$set", Value: bson.D{{Key: "mark.keys.key", Value: sealed.Off}, {Key: "mark.keys.under", Value: bson.D{{Key: sealed.Off, Value: ""}}}}}}
	if res, err := owners.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: fences.OwnerID(owner)}}, forge); err != nil || res.ModifiedCount != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := started().Check(t.Context()); !errors.Is(err, sealed.ErrState) {
		t.Errorf("a forged state: %v", err)
	}
}
