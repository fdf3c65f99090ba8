package integration_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore"
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
	changed, err := c.UpdateMany(ctx, keys(c, 0), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 900_000 + rand.Int64N(90_000)}}}})
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

// allSteps are those of a switch up to the flip.
var allSteps = []upgradestate.Step{
	upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain, upgradestate.StepSealTarget, upgradestate.StepSealSource,
}

// walk takes a stepping controller through a switch, and has something done once in each of its
// steps. What is done may end the attempt, and then the steps come again.
func (r *restorable) walk(ctx context.Context, c *child, to string, in []upgradestate.Step, do func(upgradestate.Step)) {
	r.t.Helper()
	met := map[upgradestate.Step]bool{}
	for _, step := range in {
		met[step] = false
	}
	steps := &elections{system: r.system, controller: c}
	for place := steps.nextPlace(ctx, to); place != ""; place = steps.nextPlace(ctx, to) {
		step := upgradestate.Step(place)
		if done, is := met[step]; is && !done {
			do(step)
			met[step] = true
		}
		c.order(orderStep)
	}
	for step, done := range met {
		if !done {
			r.t.Errorf("the switch to %s has not met %s", to, step)
		}
	}
}

// cli runs a command against a controller.
func (r *restorable) cli(ctx context.Context, args ...string) result {
	r.t.Helper()
	api, _ := r.controllers[len(r.controllers)-1].addresses()
	return execute(ctx, r.t, r.env, append(args, "--server", api)...)
}

// TestForeignWrites writes into the version that is not served by hand, in every phase: nothing
// that was acknowledged is lost or wrong, and nothing that somebody wrote there is served. What it
// writes into the served version by hand, behind its fence, is kept like a write of the application.
func TestForeignWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := &restorable{t: t, told: map[string]int64{}}
	r.system = newSystem(ctx, t, settings{
		copy: "{auto: false, workers: 1, maxRate: 200}", toSwitch: "{deadline: 5m, maxLag: 3s, automatic: false}",
		kinds: "[{from: packages, to: packages, lens: packages.yaml, fence: view}]", // the hidden name takes writes
	})
	docs := make([]any, 4*restorableDocs)
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
	r.change(ctx, "v1", 3)
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
	r.change(ctx, "v1", 4)
	r.meddle(ctx, "v2", "between")
	c = r.stepping("two").ready(ctx)
	r.follows(ctx, "v2")
	r.ready(ctx)
	r.forge(ctx, "v2")

	r.askSwitch(ctx)
	r.walk(ctx, c, "v2", allSteps, func(step upgradestate.Step) {
		r.meddle(ctx, "v2", string(step))
		r.slip(ctx, "v1", step, string(step))
	})
	r.served(ctx, "v2")
	r.kill(c)

	// The old version's collection, hidden behind its fence, before a rollback.
	r.meddle(ctx, "v1", "left")
	c = r.stepping("three").ready(ctx)
	r.change(ctx, "v2", 2)
	r.follows(ctx, "v1")
	r.meddle(ctx, "v1", "reverse")
	r.follows(ctx, "v1")
	r.meddle(ctx, "v1", "rollback")
	r.beginTo(ctx, "v1")
	r.ready(ctx)
	r.forge(ctx, "v1")
	r.askSwitch(ctx)
	r.walk(ctx, c, "v1", allSteps, func(step upgradestate.Step) {
		r.meddle(ctx, "v1", "back-"+string(step))
		r.slip(ctx, "v2", step, "back-"+string(step))
	})
	r.served(ctx, "v1")
}

// slip writes a document into the served version by hand, behind its fence. The attempt ends for
// what meddle did to the target, so the document is one of the application's from then on.
func (r *restorable) slip(ctx context.Context, version string, step upgradestate.Step, phase string) {
	r.t.Helper()
	if step == upgradestate.StepHold || step == upgradestate.StepFence { // it has no fence yet
		return
	}
	key := "made-by-hand-" + phase
	if _, err := r.collection(ctx, version).InsertOne(ctx, packageDoc(version, key, 8)); err != nil {
		r.t.Fatal(err)
	}
	r.told[key] = 8
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
	err := transaction(ctx, c, func(ctx context.Context) error {
		for _, id := range ids {
			if _, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(555)}}}}); err != nil {
				return err
			}
			var guard bson.D
			if err := guards.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&guard); err != nil {
				return err
			}
			if _, err := guards.ReplaceOne(ctx, bson.D{{Key: "_id", Value: id}}, append(guard, bson.E{Key: "forged", Value: true})); err != nil {
				return err
			}
		}
		return nil
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
