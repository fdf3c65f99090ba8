package regions_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
)

// delay is how long the database delays the write of a step. Its server is killed meanwhile, so the write
// is made late: other servers have taken the step by then, or are about to.
const delay = 5 * time.Second

// TestKilledInEachStep: the write of each step of a move is delayed by the database. Meanwhile the servers
// of both regions are killed: one in the middle of this step, the other one after the step before. The move
// ends all the same, and each secret is owned once and holds what was written last.
func TestKilledInEachStep(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	server, err := localmongo.Start(ctx, localmongo.Options{TestCommands: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	w := startOn(ctx, t, server.URI(), client, 1, "  forward: true\n")
	us, eu := w.regions["us"], w.regions["eu"]
	want := map[string]string{}
	for _, step := range []struct {
		name   string
		in     *region
		verb   string // of the command
		skip   int    // such commands before it
		us, eu string // states before the step
	}{
		{"begin", us, "update", 0, "none", ""},
		{"reserve", eu, "insert", 0, "leaving", ""},
		{"give", us, "update", 1, "leaving", "arriving"},
		{"arrive", eu, "update", 0, "left", "arriving"},
		{"delete", us, "delete", 0, "left", "arrived"},
	} {
		id := step.name
		w.must("a new secret", func() error { return us.create(id, "first") })
		reached, off := step.in.delay(client, step.verb, step.skip)
		begun := make(chan error, 1)
		go func() { begun <- w.retried(func() error { return us.rehome(id, "eu") }) }()
		reached()
		if here, there := strings.Join(us.has("v1", id), " and "), strings.Join(eu.has("v1", id), " and "); here != step.us || there != step.eu {
			t.Errorf("%s: us is %q and eu is %q, want %q and %q", step.name, here, there, step.us, step.eu)
		}
		for _, r := range []*region{us, eu} {
			r.servers[0].Kill()
		}
		var ended sync.WaitGroup
		ended.Go(off) // it returns after the delayed write
		for _, r := range []*region{us, eu} {
			r.servers[0].start()
		}
		us.serves()
		eu.serves()
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		w.arrives(id, "eu", "v1")
		w.must("a write in the new region", func() error {
			_, err := w.regions["asia"].update(id, "last")
			return err
		})
		want[id] = "eu:last"
		ended.Wait()
	}
	w.converge("at the end", want, names...)
	w.ownedOnce(map[string]string{"us": "v1", "eu": "v1", "asia": "v1"})
}

// delay has the database delay the writes of secrets in a region, from the one after skip on. reached waits
// until one is delayed. off ends this for later ones, and returns when the delayed one is made.
func (r *region) delay(client *mongo.Client, verb string, skip int) (reached, off func()) {
	r.t.Helper()
	all, err := r.dbs["v1"].ListCollectionNames(r.ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^secrets\.n[0-9]+$`}}})
	if err != nil || len(all) != 1 {
		r.t.Fatalf("the secrets are in %v, %v", all, err)
	}
	admin := client.Database("admin")
	var was struct{ Count int }
	err = admin.RunCommand(r.ctx, bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "skip", Value: skip}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{verb}}, {Key: "namespace", Value: r.dbs["v1"].Name() + "." + all[0]},
			{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: delay.Milliseconds()},
		}},
	}).Decode(&was)
	if err != nil {
		r.t.Fatal(err)
	}
	reached = func() {
		r.t.Helper()
		if err := admin.RunCommand(r.ctx, bson.D{{Key: "waitForFailPoint", Value: "failCommand"}, {Key: "timesEntered", Value: was.Count + 1}}).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
	return reached, func() {
		if err := admin.RunCommand(r.ctx, bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}}).Err(); err != nil {
			r.t.Error(err)
		}
	}
}
