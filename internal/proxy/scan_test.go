package proxy

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/proxy/message"
)

// TestScans: whole scans of a real collection through a proxy are the same as direct ones, before one cluster and before
// two, with names that become longer and shorter. The replies have the form that the proxy passes on.
func TestScans(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	uri, name := mongotest.Database(t)
	db := mongotest.Client(t).Database(name)
	// 25 MB in all, with documents that are longer than any buffer.
	rng := rand.New(rand.NewPCG(1, 2))
	var docs []any
	for i := range 2000 {
		size := rng.IntN(20_000)
		if i%500 == 0 {
			size = 3_000_000
		}
		filling := make([]byte, size)
		for j := 0; j < size; j += 64 {
			filling[j] = byte(rng.Uint32())
		}
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "filling", Value: filling}})
	}
	place := "o"
	if _, err := db.Collection(place).InsertMany(ctx, docs); err != nil {
		t.Fatal(err)
	}
	want := scanned(ctx, t, db.Collection(place))
	for _, clusters := range []int{1, 2} {
		for _, next := range []string{"o", "orders", "orders_of_the_first_version"} {
			if next != place {
				names := bson.D{{Key: "renameCollection", Value: name + "." + place}, {Key: "to", Value: name + "." + next}}
				if err := db.Client().Database("admin").RunCommand(ctx, names).Err(); err != nil {
					t.Fatal(err)
				}
				place = next
			}
			t.Run(fmt.Sprint(clusters, " ", place), func(t *testing.T) {
				usual(ctx, t, db.Collection(place))
				other := uri
				if clusters == 2 { // for the proxy
					mark := "?"
					if strings.Contains(uri, "?") {
						mark = "&"
					}
					other += mark + "appName=another"
				}
				kind := &pb.KindLocation{Kind: "orders", Database: name, Collection: place, Fixed: true, Fence: fenceView}
				w := &world{t: t}
				w.controllers = startControllers(t, &pb.Location{
					State: pb.Location_OPEN, Version: "v1", Database: name, Revision: 1, Epoch: 1, Cluster: "v1", Kinds: []*pb.KindLocation{kind},
				})
				w.serve(Config{Upstream: uri, Deployments: []Deployment{{
					Controllers: []string{w.controllers.server.URL}, Application: "proxy", Database: "shop",
					Collections: map[string]string{"orders": "orders"}, URIs: map[string]string{"v1": uri, "v2": other},
				}}})
				client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + w.addresses[0]))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
				if got := scanned(ctx, t, client.Database("shop").Collection("orders")); !bytes.Equal(got, want) {
					t.Errorf("%d bytes, want %d, or others", len(got), len(want))
				}
				if w.proxies[0].whole.Load() {
					t.Error("a reply did not end as it began")
				}
			})
		}
	}
}

// scanned returns all documents of a collection.
func scanned(ctx context.Context, t *testing.T, c *mongo.Collection) (all []byte) {
	t.Helper()
	cursor, err := c.Find(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	for cursor.Next(ctx) {
		all = append(all, cursor.Current...)
	}
	if err := cursor.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// usual checks that a real server writes a batch as the proxy expects it.
func usual(ctx context.Context, t *testing.T, c *mongo.Collection) {
	t.Helper()
	err := c.Database().Client().UseSession(ctx, func(ctx context.Context) error {
		var first struct{ Cursor struct{ ID int64 } }
		if err := c.Database().RunCommand(ctx, bson.D{{Key: "find", Value: c.Name()}, {Key: "batchSize", Value: 1}}).Decode(&first); err != nil {
			return err
		}
		raw, err := c.Database().RunCommand(ctx, bson.D{{Key: "getMore", Value: first.Cursor.ID}, {Key: "collection", Value: c.Name()}}).Raw()
		if err != nil {
			return err
		}
		b := message.Message{Body: bsoncore.Document(raw)}.Append(nil)
		h, rest, err := message.ReadHeader(bytes.NewReader(b), message.MaxMessage)
		if err != nil {
			return err
		}
		n, ok := message.ReadNextBatch(h, rest, b[len(b)-rest:])
		ns := c.Database().Name() + "." + c.Name()
		if !ok || n.Batch < 1<<20 || n.Cursor != idSize+nsSize+len(ns) || n.Rest != okSize+operationSize+clusterSize {
			t.Errorf("a reply has the parts %+v, %v", n, ok)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
