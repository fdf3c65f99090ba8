package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/record"
)

// ttl looks at a database whose server deletes what has expired every second.
type ttl struct {
	t *testing.T
	s *system
}

func newTTL(ctx context.Context, t *testing.T, fence record.FenceClass, oneWay bool) ttl {
	t.Helper()
	own := start(ctx, t, localmongo.Options{Own: true})
	x := ttl{t, newSystem(ctx, t, settings{uris: map[string]string{"v1": own.URI(), "v2": own.URI()}, copy: "{auto: true}", oneWay: oneWay,
		kinds: fmt.Sprintf("[{from: packages, to: packages, lens: packages.yaml, fence: %s}]", fence),
	})}
	x.ok(x.s.db["v1"].Client().Database("admin").RunCommand(ctx, bson.D{{Key: "setParameter", Value: 1}, {Key: "ttlMonitorSleepSecs", Value: 1}}).Err())
	_, err := x.s.db["v1"].Collection(packagesKind).Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "at", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(60),
	})
	x.ok(err)
	return x
}

func (x ttl) ok(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// place is the collection of the packages in a version, whatever its name is now.
func (x ttl) place(ctx context.Context, version string) *mongo.Collection {
	x.t.Helper()
	d, err := x.s.record.Get(ctx)
	if !errors.Is(err, deployment.ErrNotFound) { // the controller makes it
		x.ok(err)
	}
	ns, _ := d.Namespace(version)
	k, ok := ns.Kind(packagesKind)
	if !ok {
		k.Physical = packagesKind
	}
	return x.s.db[version].Collection(k.Physical)
}

// expired inserts a document that a TTL index deletes at once, if it deletes.
func (x ttl) expired(ctx context.Context, version, id string) {
	x.t.Helper()
	_, err := x.place(ctx, version).InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "at", Value: time.Now().Add(-time.Hour)}},
		options.InsertOne().SetBypassDocumentValidation(true))
	x.ok(err)
}

func (x ttl) holds(ctx context.Context, version, id string) bool {
	x.t.Helper()
	n, err := x.place(ctx, version).CountDocuments(ctx, bson.D{{Key: "_id", Value: id}})
	x.ok(err)
	return n == 1
}

func (x ttl) awaitGone(ctx context.Context, version, id string) {
	x.t.Helper()
	eventually(ctx, x.t, version+" deletes what has expired", func() error {
		if x.holds(ctx, version, id) {
			return fmt.Errorf("%s is there", id)
		}
		return nil
	})
}

// awaitPasses waits until the server has looked twice for what has expired.
func (x ttl) awaitPasses(ctx context.Context) {
	x.t.Helper()
	passes := func() int64 {
		raw, err := x.s.db["v1"].RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Raw()
		x.ok(err)
		n, _ := raw.Lookup("metrics", "ttl", "passes").AsInt64OK()
		return n
	}
	first := passes()
	eventually(ctx, x.t, "the server looks for what has expired", func() error {
		if n := passes(); n < first+2 {
			return fmt.Errorf("%d passes since", n-first)
		}
		return nil
	})
}

// await waits until the TTL indexes of a version delete after so many seconds.
func (x ttl) await(ctx context.Context, version string, want map[string]int64) {
	x.t.Helper()
	eventually(ctx, x.t, fmt.Sprintf("%s expires after %v", version, want), func() error {
		cursor, err := x.place(ctx, version).Indexes().List(ctx)
		if err != nil {
			return err
		}
		var shape record.Shape
		if err := cursor.All(ctx, &shape.Indexes); err != nil {
			return err
		}
		if have := record.ExpiryOf(shape); !maps.Equal(have, want) {
			return fmt.Errorf("it expires after %v", have)
		}
		return nil
	})
}

// TestExpiryOneWay: a TTL index deletes in the version that is served. The target keeps
// what has expired until the switch, and the version that was left keeps it for good.
func TestExpiryOneWay(t *testing.T) {
	t.Parallel()
	for _, fence := range []record.FenceClass{record.FenceView, record.FenceValidator} {
		t.Run(string(fence), func(t *testing.T) {
			t.Parallel()
			expiryOneWay(t, fence)
		})
	}
}

func expiryOneWay(t *testing.T, fence record.FenceClass) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x := newTTL(ctx, t, fence, true)
	never := map[string]int64{"at_1": record.NeverExpires}
	x.expired(ctx, "v1", "before")
	_, err := x.place(ctx, "v1").InsertOne(ctx, bson.D{{Key: "_id", Value: "young"}, {Key: "at", Value: time.Now().Add(time.Hour)}})
	x.ok(err)
	x.s.controller("controller", breakPoint{}).ready(ctx)
	x.await(ctx, "v2", never)
	x.awaitGone(ctx, "v1", "before")
	// A record that is in the target alone would be taken away by the controllers, which follow it.
	// So that its index deletes nothing is seen by its seconds.
	x.awaitPasses(ctx)
	x.await(ctx, "v2", never)
	x.s.begin(ctx)
	x.s.await(ctx, "the flip", flipped("v2"))
	x.expired(ctx, "v1", "late")
	x.expired(ctx, "v2", "after")
	x.awaitGone(ctx, "v2", "after")
	x.awaitPasses(ctx)
	if !x.holds(ctx, "v1", "late") || !x.holds(ctx, "v1", "young") {
		t.Error("the version that was left has deleted what has expired")
	}
	x.await(ctx, "v1", never)
	x.await(ctx, "v2", map[string]int64{"at_1": 60})
}

// TestExpiryThereAndBack: TTL indexes run where clients are; one that an application changes, makes
// or drops is taken along, in the copy and after the switch, so that what it means to keep stays in
// both versions. One that deletes at the time that a record holds (0 seconds) comes back, too.
func TestExpiryThereAndBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x := newTTL(ctx, t, record.FenceView, false)
	const never = record.NeverExpires
	index := func(version, field string, seconds int32) {
		t.Helper()
		_, err := x.place(ctx, version).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: field, Value: 1}}, Options: options.Index().SetExpireAfterSeconds(seconds)})
		x.ok(err)
	}
	drop := func(version, name string) {
		t.Helper()
		x.ok(x.place(ctx, version).Indexes().DropOne(ctx, name))
	}
	kept := func(when, field string) {
		t.Helper()
		x.awaitPasses(ctx)
		for _, version := range []string{"v1", "v2"} {
			if n, err := x.place(ctx, version).CountDocuments(ctx, bson.D{{Key: field, Value: bson.D{{Key: "$exists", Value: true}}}}); err != nil || n != 20 {
				t.Errorf("%s: %s has %d of 20 that the application keeps, %v", when, version, n, err)
			}
		}
	}
	insert := func(version, field string) {
		t.Helper()
		for i := range 20 {
			doc := bson.D{{Key: "_id", Value: fmt.Sprint(field, i)}, {Key: field, Value: time.Now().Add(-48 * time.Hour)}}
			if version == "v2" {
				doc = append(doc, bson.E{Key: "schema", Value: 2})
			}
			_, err := x.place(ctx, version).InsertOne(ctx, doc)
			x.ok(err)
		}
	}
	index("v1", "until", 0)
	index("v1", "gone", 3600*24)
	index("v1", "later", 3600*24)
	x.s.controller("controller", breakPoint{}).ready(ctx)
	x.await(ctx, "v2", map[string]int64{"at_1": never, "until_1": never, "gone_1": never, "later_1": never})
	drop("v1", "gone_1")
	insert("v1", "gone")
	x.await(ctx, "v2", map[string]int64{"at_1": never, "until_1": never, "later_1": never})
	x.s.begin(ctx)
	x.s.await(ctx, "the flip", flipped("v2"))
	x.await(ctx, "v2", map[string]int64{"at_1": 60, "until_1": 0, "later_1": 3600 * 24})
	x.await(ctx, "v1", map[string]int64{"at_1": never, "until_1": never, "later_1": never})
	kept("after the switch", "gone")
	drop("v2", "later_1")
	insert("v2", "later")
	// The application of v2 wants it otherwise.
	x.ok(x.s.db["v2"].RunCommand(ctx, bson.D{{Key: "collMod", Value: packagesKind}, {Key: "index", Value: bson.D{{Key: "name", Value: "at_1"}, {Key: "expireAfterSeconds", Value: 600}}}}).Err())
	// What expires after the switch goes from both.
	_, err := x.place(ctx, "v2").InsertOne(ctx, bson.D{{Key: "_id", Value: "both"}, {Key: "schema", Value: 2}})
	x.ok(err)
	eventually(ctx, t, "the old version follows", func() error {
		if !x.holds(ctx, "v1", "both") {
			return fmt.Errorf("it is not there")
		}
		return nil
	})
	_, err = x.place(ctx, "v2").UpdateOne(ctx, bson.D{{Key: "_id", Value: "both"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: time.Now().Add(-time.Hour)}}}})
	x.ok(err)
	x.awaitGone(ctx, "v1", "both")

	x.s.beginTo(ctx, "v1")
	x.s.await(ctx, "the flip back", flipped("v1"))
	x.await(ctx, "v1", map[string]int64{"at_1": 600, "until_1": 0, "later_1": never})
	x.await(ctx, "v2", map[string]int64{"at_1": never, "until_1": never, "later_1": never}) // as v1 has them
	x.expired(ctx, "v1", "back")
	x.awaitGone(ctx, "v1", "back")
	kept("after the rollback", "later")
}

// TestExpiryAborted: the switch has stopped the application's TTL index when its controller
// is killed. The leader after the abort lets it go on.
func TestExpiryAborted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x := newTTL(ctx, t, record.FenceView, false)
	first := x.s.controller("first", breakPoint{At: beforeFence, N: 1}).ready(ctx)
	first.arm(ctx)
	x.s.begin(ctx)
	first.awaitReached(ctx)
	x.await(ctx, "v1", map[string]int64{"at_1": record.NeverExpires})
	x.expired(ctx, "v1", "meanwhile")
	x.awaitPasses(ctx)
	if !x.holds(ctx, "v1", "meanwhile") {
		t.Error("the source has deleted during the switch")
	}
	d, err := x.s.record.Get(ctx)
	x.ok(err)
	// The first controller stands in its fence and cannot end the abort. Without an abort, the second one
	// would finish the switch.
	x.s.abort(ctx, d.Upgrade.ID)
	x.s.kill(first)
	x.s.controller("second", breakPoint{}).ready(ctx)
	x.s.await(ctx, "the end of the abort", flipped("v1"))
	x.awaitGone(ctx, "v1", "meanwhile")
	x.await(ctx, "v1", map[string]int64{"at_1": 60})
	x.await(ctx, "v2", map[string]int64{"at_1": record.NeverExpires})
}
