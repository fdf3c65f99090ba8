package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/workload"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// atSwap: the N-th Swap of a data update was done and is not known to be. Further ones are
// not sent.
const atSwap = "swap"

func (ns *breaking) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	b := ns.breaker
	if b.standsAt(atSwap) {
		b.stand()
	}
	results, err := ns.Namespace.Swap(ctx, tok, swaps)
	b.mu.Lock()
	b.done[atSwap]++
	there := b.point.At == atSwap && b.done[atSwap] >= b.point.N
	if there {
		b.reached()
	}
	b.mu.Unlock()
	if there {
		b.stand()
	}
	return results, err
}

const fillLens = `lens: 1
operations:
  - add: {field: region, default: us-west2}
`

// updating is a system with a data update, and the traffic of its application alone.
type updating struct {
	*system
	traffic *traffic
}

func newUpdating(ctx context.Context, t *testing.T, set settings, documents int) *updating {
	t.Helper()
	u := &updating{system: newSystem(ctx, t, set)}
	config, err := os.ReadFile(u.config)
	if err != nil {
		t.Fatal(err)
	}
	u.write("config.yaml", string(config)+"updates:\n- {name: fill-region, kind: packages, version: v1, lens: fill.yaml}\n")
	u.write("fill.yaml", fillLens)
	u.traffic = newTraffic(ctx, u.system, documents)
	return u
}

// writers drives the application.
func (u *updating) writers(ctx context.Context) {
	tr := u.traffic
	ctx, tr.stop = context.WithCancel(ctx)
	u.t.Cleanup(tr.finish)
	for i := range appClients {
		w := &packageWriter{system: u.system, ledger: tr.packages, rng: rand.New(rand.NewPCG(2, uint64(i)))}
		for j := range ownDocuments {
			w.live = append(w.live, packageKey(i*ownDocuments+j))
		}
		tr.drive(ctx, func() { w.step(ctx) })
	}
	tr.await(ctx, "v1", 10, tr.packages)
}

// fill begins the data update at whichever controller answers.
func (u *updating) fill(ctx context.Context) (id string) {
	u.t.Helper()
	eventually(ctx, u.t, "the data update begins", func() error {
		err := errors.New("no controller listens")
		for _, api := range u.apis() {
			var res *connect.Response[dbv1.Deployment]
			if res, err = api.BeginUpdate(ctx, connect.NewRequest(&dbv1.BeginUpdateRequest{Task: "fill-region"})); err == nil {
				id = res.Msg.GetUpdate().GetId()
				return nil
			}
		}
		return err
	})
	return id
}

// ended waits for the end of a data update.
func (s *system) ended(ctx context.Context, id string) (upgradestate.Deployment, string) {
	s.t.Helper()
	outcome := ""
	d := s.await(ctx, "the end of the data update", func(d upgradestate.Deployment) bool {
		for _, e := range d.History {
			if e.What == "update" && e.ID == id {
				outcome = e.Outcome
			}
		}
		return outcome != ""
	})
	return d, outcome
}

// check compares what the application would find in a version with the ledger. Documents
// without a region are allowed among those that the application writes, if fresh is set: it
// may have inserted them behind the update.
func (u *updating) check(ctx context.Context, version string, fresh bool) error {
	cursor, err := u.db[version].Collection(packagesKind).Find(ctx, bson.D{})
	if err != nil {
		return err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	seen := workload.Seen{}
	for cursor.Next(ctx) {
		var doc struct {
			ID     string `bson:"_id"`
			N      int64  `bson:"n"`
			Name   string `bson:"name"`
			Region string `bson:"region"`
		}
		if err := bson.Unmarshal(cursor.Current, &doc); err != nil {
			return err
		}
		seen.Add(doc.ID, packageState(doc.N))
		if doc.Name != "name of "+doc.ID {
			return fmt.Errorf("%s is %s", doc.ID, cursor.Current)
		}
		if written := doc.ID < packageKey(appClients*ownDocuments); doc.Region != "us-west2" && (!fresh || !written || doc.Region != "") {
			return fmt.Errorf("region of %s is %q", doc.ID, doc.Region)
		}
	}
	if err := cursor.Err(); err != nil {
		return err
	}
	return errors.Join(u.traffic.packages.check("MongoDB of "+version, seen), u.traffic.packages.failures())
}

// TestUpdateKilled fills a field of 20,000 documents while their application writes, and
// kills one of two controllers in the middle: every document has the field, and no write
// of the application is lost.
func TestUpdateKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const documents = 20_000
	u := newUpdating(ctx, t, settings{}, documents)
	first := u.controller("first", breakPoint{At: atSwap, N: 6}).ready(ctx)
	u.controller("second", breakPoint{}).ready(ctx)
	u.awaitShards(ctx, "first", "second")
	u.writers(ctx)
	id := u.fill(ctx)
	if place := first.awaitReached(ctx); place != atSwap {
		t.Fatalf("reached %q", place)
	}
	eventually(ctx, t, "progress is shown", func() error {
		res, err := u.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return err
		}
		if p := res.Msg.GetUpdate(); p.GetTotal() < documents-appClients*ownDocuments || p.GetSeen() == 0 || p.GetChanged() == 0 {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
	u.kill(first)
	killed := time.Now()
	_, outcome := u.ended(ctx, id)
	t.Logf("KILL in a data update: it ended %s after the kill: %s", time.Since(killed).Round(time.Millisecond), outcome)
	if !strings.HasPrefix(outcome, "done; ") {
		t.Errorf("the update ended as %q", outcome)
	}
	u.traffic.finish()
	if err := u.check(ctx, "v1", true); err != nil {
		t.Error(err)
	}
	// With the application at rest the numbers are exact, and nothing is left out.
	if _, outcome = u.ended(ctx, u.fill(ctx)); !strings.HasPrefix(outcome, "done; ") {
		t.Errorf("the second update ended as %q", outcome)
	}
	if err := u.check(ctx, "v1", false); err != nil {
		t.Error(err)
	}
	if _, outcome = u.ended(ctx, u.fill(ctx)); outcome != fmt.Sprintf("done; %d seen, 0 changed", u.live(ctx)) {
		t.Errorf("the third update ended as %q", outcome)
	}
}

// live is how many documents the application has.
func (u *updating) live(ctx context.Context) int64 {
	u.t.Helper()
	n, err := u.db["v1"].Collection(packagesKind).CountDocuments(ctx, bson.D{})
	if err != nil {
		u.t.Fatal(err)
	}
	return n
}

// TestUpdateDuringUpgrade updates the old namespace while an upgrade copies it: the switch
// waits for the update, what it has written is a change like any other, and both
// namespaces hold it afterwards.
func TestUpdateDuringUpgrade(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	u := newUpdating(ctx, t, settings{}, 2*documents)
	u.controller("first", breakPoint{}).ready(ctx)
	u.controller("second", breakPoint{}).ready(ctx)
	u.awaitShards(ctx, "first", "second")
	u.writers(ctx)
	u.begin(ctx)
	id := u.fill(ctx)
	started, err := u.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if started.Upgrade == nil || started.Upgrade.State != upgradestate.InitialSyncing {
		t.Fatalf("the update began outside of the upgrade: %+v", started.Upgrade)
	}
	d, outcome := u.ended(ctx, id)
	if !strings.HasPrefix(outcome, "done; ") {
		t.Errorf("the update ended as %q", outcome)
	}
	ended := time.Time{}
	for _, e := range d.History {
		if e.What == "update" {
			if ended, err = time.Parse(time.RFC3339Nano, e.Ended); err != nil {
				t.Fatal(err)
			}
		}
	}
	d = u.await(ctx, "the flip", flipped("v2"))
	for _, e := range d.History {
		for _, p := range e.Phases {
			at, err := time.Parse(time.RFC3339Nano, p.At)
			if err != nil {
				t.Fatal(err)
			}
			if p.Phase == string(upgradestate.StepHold) && at.Before(ended) {
				t.Errorf("the switch began at %s, the update ended at %s", p.At, ended)
			}
		}
	}
	u.traffic.await(ctx, "v2", 10, u.traffic.packages)
	u.traffic.finish()
	if err := u.check(ctx, "v2", true); err != nil {
		t.Error(err)
	}
	eventually(ctx, t, "the old namespace is in sync", func() error { return u.check(ctx, "v1", true) })
}
