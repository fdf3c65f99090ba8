package integration_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
)

// TestProxyLaggingSecondary: both versions are in one cluster, and a secondary has not replicated the names that a
// switch gave. A read of it through a proxy waits for them, and finds the document.
func TestProxyLaggingSecondary(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nodes := start(ctx, t, localmongo.Options{Nodes: 3, Own: true, TestCommands: true})
	s := newSystem(ctx, t, settings{
		service: "bank", lens: "lens: 1\noperations: []\n", kinds: "[{from: accounts, to: accounts, lens: packages.yaml}]",
		uris: map[string]string{"v1": nodes.URI(), "v2": nodes.URI()},
	})
	e := &elections{system: s, nodes: nodes}
	collections{t}.insert(s.db["v1"], "accounts", `{"_id":"old"}`)
	e.awaitReplicated(ctx)
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.startProxy(ctx, api, "accounts") + "/?readPreference=secondary"))
	e.must(err)
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	accounts := client.Database(s.db["v1"].Name()).Collection("accounts")
	lags := e.others(e.primary(ctx))[0]
	e.fetches(ctx, lags, false)
	s.beginTo(ctx, "v2")
	s.await(ctx, "the flip", flipped("v2"))
	// The proxy is at the new place when it has made this.
	_, err = accounts.InsertOne(ctx, bson.D{{Key: "_id", Value: "new"}})
	e.must(err)
	const reads = 1000 // at most
	found := make(chan error, reads)
	asked := 0
	read := func() { found <- accounts.FindOne(ctx, bson.D{{Key: "_id", Value: "old"}}).Err() }
	// Each one asks one of two secondaries.
	waiting := mongo.Pipeline{{{Key: "$currentOp", Value: bson.D{}}}, {{Key: "$match", Value: bson.D{
		{Key: "command.find", Value: bson.D{{Key: "$exists", Value: true}}}, {Key: "command.filter._id", Value: "old"},
	}}}}
	eventually(ctx, t, "a read waits at the secondary", func() error {
		if asked < reads {
			asked++
			go read()
		}
		for len(found) > 0 {
			if err := <-found; err != nil {
				t.Fatalf("a read at the new place: %v", err)
			}
			asked--
		}
		ops, err := e.direct(lags).Database("admin").Aggregate(ctx, waiting)
		if err != nil {
			return err
		}
		if !ops.Next(ctx) {
			return errors.Join(ops.Err(), errTooFew)
		}
		return ops.Close(ctx)
	})
	e.fetches(ctx, lags, true)
	for range asked {
		e.must(<-found)
	}
}
