package mongostore_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

func TestConformance(t *testing.T) { recordtest.Exercise(t, factory) }

// TestConformanceEncrypted: what is in front of the backend asks of it what it does.
func TestConformanceEncrypted(t *testing.T) {
	recordtest.ExerciseTopics(t, func(t *testing.T) recordtest.Backend { return recordtest.Encrypted(t, factory(t)) },
		"scan", "read", "apply", "load", "client", "swap", "once", "indexes") // the others pass documents on
}

func factory(t *testing.T) recordtest.Backend {
	uri, name := mongotest.Database(t)
	ns := storetest.OpenSuite(t, uri, name)
	app := application{mongotest.Client(t).Database(name)}
	return recordtest.Backend{
		Namespace: ns,
		Client:    ns.Client(),
		Reopen:    func() record.Namespace { return storetest.OpenSuite(t, uri, name) },
		App:       app,
		Leftovers: app.names,
	}
}

// application writes as any program does that knows the collection's name.
type application struct{ db *mongo.Database }

var _ recordtest.App = application{}

func (a application) Insert(ctx context.Context, name string, doc bson.Raw) error {
	_, err := a.db.Collection(name).InsertOne(ctx, doc)
	return err
}

func (a application) Put(ctx context.Context, name string, doc bson.Raw) error {
	_, err := a.db.Collection(name).ReplaceOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}}, doc, options.Replace().SetUpsert(true))
	return err
}

func (a application) Delete(ctx context.Context, name string, id bson.RawValue) error {
	_, err := a.db.Collection(name).DeleteOne(ctx, bson.D{{Key: "_id", Value: id}})
	return err
}

func (a application) Documents(ctx context.Context, name string) ([]bson.Raw, error) {
	cur, err := a.db.Collection(name).Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
	err = cur.All(ctx, &docs)
	return docs, err
}

func (a application) names(t *testing.T) []string {
	t.Helper()
	names, err := a.db.ListCollectionNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
