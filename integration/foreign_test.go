package integration_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/mongostore"
	"dbcontroller.dev/upgradestate"
)

// collection is where a version's packages are now.
func (r *restorable) collection(ctx context.Context, version string) *mongo.Collection {
	r.t.Helper()
	d, err := r.record.Get(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	ns, _ := d.Namespace(version)
	k, _ := ns.Kind(packagesKind)
	return r.db[version].Collection(k.Physical)
}

// meddled counts what a person changed by hand.
type meddled struct{ inserted, changed, deleted int64 }

// meddle inserts, changes and deletes 50 documents of a version by hand, where it is now.
func (r *restorable) meddle(ctx context.Context, version, phase string) {
	r.t.Helper()
	var did meddled
	keys := func(c *mongo.Collection, skip int64) bson.D {
		ids := []string{}
		cur, err := c.Find(ctx, bson.D{{Key: "_id", Value: bson.Regex{Pattern: "^(package|made)-"}}})
		var docs []struct {
			ID string `bson:"_id"`
		}
		if err == nil {
			err = cur.All(ctx, &docs)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		for i, d := range docs {
			if int64(i) >= skip && int64(i) < skip+50 {
				ids = append(ids, d.ID)
			}
		}
		return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	}
	c := r.collection(ctx, version)
	changed, err := c.UpdateMany(ctx, keys(c, 0), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(999_999)}}}})
	if err != nil {
		r.t.Fatal(err)
	}
	deleted, err := c.DeleteMany(ctx, keys(c, 50))
	if err != nil {
		r.t.Fatal(err)
	}
	var made []any
	for i := range 50 {
		made = append(made, packageDoc(version, fmt.Sprintf("foreign-%s-%d", phase, i), 7))
	}
	inserted, err := c.InsertMany(ctx, made)
	if err != nil {
		r.t.Fatal(err)
	}
	did = meddled{int64(len(inserted.InsertedIDs)), changed.ModifiedCount, deleted.DeletedCount}
	if did != (meddled{50, 50, 50}) {
		r.t.Fatalf("%s: %+v by hand: the test has not done what it means", phase, did)
	}
}

// cli runs a command against a controller.
func (r *restorable) cli(ctx context.Context, args ...string) result {
	r.t.Helper()
	api, _ := r.controllers[len(r.controllers)-1].addresses()
	return execute(ctx, r.t, r.env, append(args, "--server", api)...)
}

// TestForeignWrites writes into the version that is not served by hand, in every phase: nothing
// that was acknowledged is lost or wrong, and nothing that somebody wrote there is served.
func TestForeignWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := &restorable{t: t, told: map[string]int64{}}
	r.system = newSystem(ctx, t, settings{copy: "{auto: false, workers: 2, maxRate: 60}", toSwitch: "{deadline: 5m, maxLag: 3s, automatic: false}"})
	docs := make([]any, restorableDocs)
	for i := range docs {
		docs[i] = packageDoc("v1", packageKey(i), 0)
		r.told[packageKey(i)] = 0
	}
	if _, err := r.db["v1"].Collection(packagesKind).InsertMany(ctx, docs); err != nil {
		t.Fatal(err)
	}
	c := r.stepping("one").ready(ctx)

	r.begin(ctx)
	eventually(ctx, t, "a part is copied", func() error {
		n, err := r.collection(ctx, "v2").CountDocuments(ctx, bson.D{})
		if err == nil && n < 110 {
			err = fmt.Errorf("%d documents", n)
		}
		return err
	})
	r.meddle(ctx, "v2", "copy")
	r.pace(ctx)
	r.ready(ctx)
	r.follows(ctx, "v2")

	r.meddle(ctx, "v2", "ready")
	r.follows(ctx, "v2")
	r.change(ctx, "v1", 1)
	r.meddle(ctx, "v2", "tail")
	r.follows(ctx, "v2")

	r.kill(c)
	r.meddle(ctx, "v2", "between")
	c = r.stepping("two").ready(ctx)
	r.follows(ctx, "v2")
	r.ready(ctx)

	// During the switch, in each step up to the seal.
	steps := &elections{system: r.system, controller: c}
	if _, err := r.apis()[0].Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{})); err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for place := steps.nextPlace(ctx, "v2"); place != ""; place = steps.nextPlace(ctx, "v2") {
		switch upgradestate.Step(place) {
		case upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain:
			if !met[place] {
				r.meddle(ctx, "v2", place)
			}
			met[place] = true
		default:
		}
		c.order(orderStep)
	}
	if len(met) != 3 {
		t.Errorf("met the steps %v, want three", met)
	}
	r.await(ctx, "the switch to v2", flipped("v2"))
	if err := r.differs(ctx, r.db["v2"].Collection(packagesKind), r.told); err != nil {
		t.Errorf("served is v2: %v", err)
	}
	r.kill(c)

	// The old version's collection, hidden behind its fence, before a rollback.
	r.meddle(ctx, "v1", "left")
	r.controller("three", breakPoint{}).ready(ctx)
	r.change(ctx, "v2", 2)
	r.follows(ctx, "v1")
	r.meddle(ctx, "v1", "reverse")
	r.follows(ctx, "v1")
	r.meddle(ctx, "v1", "rollback")
	r.beginTo(ctx, "v1")
	r.ready(ctx)
	r.forge(ctx, "v1")
	r.switches(ctx, "v1")
}

// forge changes documents by hand so that the change looks like the controller's own, which only a
// comparison finds; and the way out of that by the command line.
func (r *restorable) forge(ctx context.Context, version string) {
	r.t.Helper()
	c := r.collection(ctx, version)
	guards := r.db[version].Collection(mongostore.GuardsName(packagesKind))
	ids := []string{}
	for k := range maps.Keys(r.told) {
		if ids = append(ids, k); len(ids) == 3 {
			break
		}
	}
	session, err := r.db[version].Client().StartSession()
	if err != nil {
		r.t.Fatal(err)
	}
	defer session.EndSession(ctx)
	guard := record.Guard{Epoch: 1}
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		for _, id := range ids {
			if _, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(555)}}}}); err != nil {
				return nil, err
			}
			if _, err := guards.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
				return nil, err
			}
			if _, err := guards.InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "g", Value: guard.Bytes()}}); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if got := r.cli(ctx, "verify"); got.code != 1 || !strings.Contains(got.stdout, "DIFFERENT") {
		r.t.Errorf("verify: %d %s%s", got.code, got.stdout, got.stderr)
	}
	shown := r.cli(ctx, "get", "deployment").stdout
	if !strings.Contains(shown, "DIFFERENT") || !strings.Contains(shown, "'verify --repair': a comparison found 3 groups that differ") || !strings.Contains(shown, ids[0]) {
		r.t.Errorf("get shows %s", shown)
	}
	if got := r.cli(ctx, "verify", "--repair"); got.code != 0 || !strings.Contains(got.stdout, "equal: ") {
		r.t.Errorf("verify --repair: %d %s%s", got.code, got.stdout, got.stderr)
	}
	if shown := r.cli(ctx, "get", "deployment").stdout; strings.Contains(shown, "DIFFERENT") {
		r.t.Errorf("get still shows %s", shown)
	}
	r.ready(ctx)
}
