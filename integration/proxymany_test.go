package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/record"
)

// TestProxyManyDocuments: statements through a proxy take longer than the controllers wait for it, so a fence
// meets them in the middle. None is made again, and none is acknowledged that the switch leaves behind.
func TestProxyManyDocuments(t *testing.T) {
	t.Parallel()
	for _, fence := range []record.FenceClass{record.FenceView, record.FenceValidator} {
		t.Run(string(fence), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			proxyManyDocuments(ctx, t, newSystem(ctx, t, settings{
				lens:  "lens: 1\noperations: []\n",
				kinds: fmt.Sprintf("[{from: packages, to: packages, lens: packages.yaml, fence: %s}]", fence),
			}), "")
		})
	}
}

// TestProxyManyDocumentsSharded: one shard can have made its part of a statement when another one refuses
// it. It runs by itself, as other tests with a sharded cluster do.
func TestProxyManyDocumentsSharded(t *testing.T) { //nolint:paralleltest // see above
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := mongotest.Sharded(t)
	s := newSystem(ctx, t, settings{
		lens: "lens: 1\noperations: []\n", kinds: "[{from: packages, to: packages, lens: packages.yaml}]",
		uris: map[string]string{"v1": c.URI(), "v2": c.URI()}, toSwitch: "{deadline: 30s, maxLag: 5s}",
	})
	c.ShardHashed(t, s.db["v1"].Name(), packagesKind)
	c.ShardHashed(t, s.db["v2"].Name(), record.PhysicalName(packagesKind, 1))
	proxyManyDocuments(ctx, t, s, "?retryWrites=false") // the proxy refuses retryable writes there
}

func proxyManyDocuments(ctx context.Context, t *testing.T, s *system, clientOptions string) {
	t.Helper()
	s.fill(ctx, newLedger("package"), manyEnough)
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.startProxy(ctx, api, packagesKind) + "/" + clientOptions))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	packages := client.Database(s.db["v1"].Name()).Collection(packagesKind)
	// Some that a statement deletes one by one, for longer than the hold lasts.
	const doomed = 60
	for i := range doomed {
		if _, err := packages.InsertOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprintf("doomed-%03d", i)}, {Key: "doomed", Value: true}}); err != nil {
			t.Fatal(err)
		}
	}
	slowly := bson.E{Key: "$where", Value: fmt.Sprintf("sleep(%d) || true", perDocument.Milliseconds())}
	updated, deleted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := packages.UpdateMany(ctx, bson.D{{Key: "doomed", Value: nil}, slowly}, bson.D{{Key: "$inc", Value: bson.D{{Key: "proxy", Value: 1}}}})
		updated <- err
	}()
	eventually(ctx, t, "the update is under way", func() error {
		if n, err := s.updated(ctx, "v1", "proxy"); err != nil || n == 0 {
			return errors.Join(err, errTooFew)
		}
		return nil
	})
	s.beginHolding(ctx, "v2")
	s.awaitSync(ctx)
	go func() {
		_, err := packages.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: "doomed-"}, {Key: "$lt", Value: "doomed."}}}, slowly})
		deleted <- err
	}()
	s.goOn(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if err := <-updated; err == nil {
		t.Error("the update was acknowledged")
	} else {
		t.Logf("the update: %v", err)
	}
	if n, err := s.updated(ctx, "v2", "proxy"); err != nil || n == 0 || n >= int64(manyEnough) {
		t.Errorf("%d of %d were updated once, want a part: %v", n, manyEnough, err)
	}
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.M{"proxy": bson.M{"$gt": 1}}); err != nil || n > 0 {
		t.Errorf("%d were updated twice: %v", n, err)
	}
	err = <-deleted
	t.Logf("the delete: %v", err)
	n, countErr := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.M{"doomed": true})
	if countErr != nil || err == nil && n > 0 {
		t.Errorf("the delete ended with %v, and %d of its documents are there: %v", err, n, countErr)
	}
}
