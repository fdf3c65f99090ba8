package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
)

// TestProxyServes: whatever a driver asks is answered in the application's names, before and after a
// switch to another cluster, and what cannot be served is refused by name.
func TestProxyServes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		service: "shop", lens: "lens: 1\noperations: []\n",
		kinds: "[{from: orders, to: orders, lens: packages.yaml}, {from: users, to: users, lens: packages.yaml}]",
		uris:  map[string]string{"v2": start(ctx, t, localmongo.Options{Own: true}).URI()},
	})
	for _, name := range []string{"orders", "users", "logs"} {
		if err := s.db["v1"].CreateCollection(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.startProxy(ctx, api, "orders", "users") + "/?w=majority"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	db := client.Database(s.db["v1"].Name())
	for round, version := range []string{"v1", "v2", "v1"} {
		if round > 0 {
			s.beginTo(ctx, version)
			s.await(ctx, "the flip to "+version, flipped(version))
		}
		t.Run(fmt.Sprint(round, version), func(t *testing.T) { servesAll(ctx, t, db, round) })
	}
}

const manyOrders = 3000

func servesAll(ctx context.Context, t *testing.T, db *mongo.Database, round int) {
	orders, users, logs := db.Collection("orders"), db.Collection("users"), db.Collection("logs")
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	var docs []any
	for i := range manyOrders {
		docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("%d-%d", round, i)}, {Key: "user", Value: fmt.Sprint(round)}})
	}
	_, err := orders.InsertMany(ctx, docs)
	check("insert many", err)
	_, err = users.InsertOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprint(round)}})
	check("insert", err)
	_, err = logs.InsertOne(ctx, bson.D{{Key: "_id", Value: round}})
	check("insert into a collection that does not move", err)

	_, err = orders.InsertOne(ctx, docs[0])
	if !mongo.IsDuplicateKeyError(err) || !strings.Contains(err.Error(), db.Name()+".orders ") {
		t.Errorf("a duplicate key: %v, want the name %s.orders", err, db.Name())
	}
	// A cursor of many batches.
	found, err := orders.Find(ctx, bson.D{{Key: "user", Value: fmt.Sprint(round)}}, options.Find().SetBatchSize(100))
	check("find", err)
	var all []bson.D
	check("read a cursor to its end", found.All(ctx, &all))
	if len(all) != manyOrders {
		t.Errorf("%d documents, want %d", len(all), manyOrders)
	}
	// One that is left.
	found, err = orders.Find(ctx, bson.D{}, options.Find().SetBatchSize(2))
	check("find", err)
	check("kill a cursor", found.Close(ctx))
	joined, err := users.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id", Value: fmt.Sprint(round)}}}},
		{{Key: "$lookup", Value: bson.D{{Key: "from", Value: "orders"}, {Key: "localField", Value: "_id"}, {Key: "foreignField", Value: "user"}, {Key: "as", Value: "orders"}}}},
		{{Key: "$project", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$size", Value: "$orders"}}}}}},
	})
	check("join", err)
	var counted []struct{ N int }
	check("join", joined.All(ctx, &counted))
	if len(counted) != 1 || counted[0].N != manyOrders {
		t.Errorf("the join says %+v", counted)
	}
	n, err := orders.CountDocuments(ctx, bson.D{})
	if check("count", err); n != int64(manyOrders*(round+1)) {
		t.Errorf("%d orders, want %d", n, manyOrders*(round+1))
	}
	_, err = orders.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "user", Value: 1}}})
	check("create an index", err)
	indexes, err := orders.Indexes().ListSpecifications(ctx)
	check("list indexes", err)
	if !slices.ContainsFunc(indexes, func(i mongo.IndexSpecification) bool { return i.Name == "user_1" }) {
		t.Errorf("indexes %+v", indexes)
	}
	names, err := db.ListCollectionNames(ctx, bson.D{})
	check("list collections", err)
	for _, want := range []string{"orders", "users", "logs"} {
		if n := len(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != want })); n != 1 {
			t.Errorf("%d of %s in %v", n, want, names)
		}
	}
	one, err := db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: "orders"}})
	if check("list one", err); len(one) != 1 || one[0].Type != "collection" {
		t.Errorf("one collection: %+v", one)
	}
	_, err = db.Client().BulkWrite(ctx, []mongo.ClientBulkWrite{
		{Database: db.Name(), Collection: "orders", Model: mongo.NewClientDeleteOneModel().SetFilter(bson.D{{Key: "_id", Value: fmt.Sprintf("%d-0", round)}})},
		{Database: db.Name(), Collection: "users", Model: mongo.NewClientUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: "none"}}).SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: 1}}}})},
	})
	check("bulk write", err)
	_, err = orders.InsertOne(ctx, docs[0])
	check("insert what the bulk write deleted", err)

	stream, err := orders.Watch(ctx, mongo.Pipeline{})
	check("watch", err)
	if err == nil {
		_, err = orders.UpdateOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprintf("%d-0", round)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "seen", Value: true}}}})
		check("update", err)
		if !stream.Next(ctx) {
			t.Errorf("no event: %v", stream.Err())
		}
		if ns := stream.Current.Lookup("ns").Document(); ns.Lookup("db").StringValue() != db.Name() || ns.Lookup("coll").StringValue() != "orders" {
			t.Errorf("the event is of %v", ns)
		}
		check("close a stream", stream.Close(ctx))
	}
	for what, command := range map[string]bson.D{
		"a join with what does not move": {{Key: "aggregate", Value: "orders"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$unionWith", Value: "logs"}}}}, {Key: "cursor", Value: bson.D{}}},
		"a join with what moves":         {{Key: "aggregate", Value: "logs"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$unionWith", Value: "orders"}}}}, {Key: "cursor", Value: bson.D{}}},
		"a stream of the database":       {{Key: "aggregate", Value: 1}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{}}}}}, {Key: "cursor", Value: bson.D{}}},
		"a view":                         {{Key: "create", Value: "v"}, {Key: "viewOn", Value: "orders"}},
		"an unknown command":             {{Key: "convertToCapped", Value: "orders"}, {Key: "size", Value: 1000}},
		"a login":                        {{Key: "saslStart", Value: 1}, {Key: "mechanism", Value: "PLAIN"}, {Key: "payload", Value: "x"}},
		"a drop of the database":         {{Key: "dropDatabase", Value: 1}},
	} {
		var refused mongo.CommandError
		if err := db.RunCommand(ctx, command).Err(); !errors.As(err, &refused) || refused.Code != 115 && refused.Code != 20 {
			t.Errorf("%s: %v", what, err)
		}
	}
}
