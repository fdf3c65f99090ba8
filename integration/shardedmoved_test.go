package integration_test

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestShardedApplicationMoved: a cluster moves the collections of an application that has no managed
// kinds, by movePrimary and by reshardCollection: in sync, held at ready (in make soak), during a
// switch, and after it while no controller runs.
// Controllers follow each by themselves, and nobody runs 'recover'. During the switch they say why the
// attempt ends, and retry it. Nothing is lost.
func TestShardedApplicationMoved(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	c := mongotest.Sharded(t)
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": c.URI(), "v2": c.URI()}, service: "shop.example.com",
		copy: "{auto: true, workers: 2}", toSwitch: "{deadline: 5m, maxLag: 5s}",
		kinds: "[{from: ranged, to: ranged, lens: packages.yaml}, {from: other, to: other, lens: packages.yaml}, {from: unsharded, to: unsharded, lens: packages.yaml}]",
	})
	v1 := s.db["v1"].Name()
	has := map[string]int{"ranged": 0, "other": 0, "unsharded": 0}
	// insert has the application of a version write so many documents to each kind.
	insert := func(version string, n int) {
		t.Helper()
		for kind, from := range has {
			for i := range n {
				if _, err := s.db[version].Collection(kind).InsertOne(ctx, packageDoc(version, packageKey(from+i), 0)); err != nil {
					t.Fatal(err)
				}
			}
			has[kind] += n
		}
	}
	c.ShardRanged(t, v1, "ranged", packageKey(20))
	c.ShardRanged(t, v1, "other", packageKey(20))
	insert("v1", 40)
	controller := s.stepping("controller").ready(ctx)
	s.awaitSync(ctx)

	replacements := func(d upgradestate.Deployment, version, kind string) uint64 {
		ns, _ := d.Namespace(version)
		k, _ := ns.Kind(kind)
		return k.Replaced
	}
	// follows has the cluster move collections, and waits until controllers follow the new ones.
	follows := func(act string, kinds []string, do func()) {
		t.Helper()
		before, err := s.record.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		do()
		insert("v1", 5)
		d := s.await(ctx, act+" to be followed", func(d upgradestate.Deployment) bool {
			for _, kind := range kinds {
				if replacements(d, "v1", kind) <= replacements(before, "v1", kind) {
					return false
				}
			}
			return true
		})
		if d.Epoch != before.Epoch {
			t.Errorf("after %s: epoch %d, before %d", act, d.Epoch, before.Epoch)
		}
	}
	follows("movePrimary in sync", []string{"unsharded"}, func() { c.MovePrimary(t, v1) })
	s.awaitSync(ctx)

	ready := func(d upgradestate.Deployment) bool { return d.Upgrade != nil && len(d.Upgrade.ReadyShards) == ring }
	s.beginHolding(ctx, "v2")
	s.await(ctx, "readiness", ready)
	if soaks() {
		follows("movePrimary and reshardCollection at ready", []string{"unsharded", "ranged"}, func() {
			c.MovePrimary(t, v1)
			c.Reshard(t, v1, "ranged", bson.D{{Key: "_id", Value: "hashed"}})
		})
		s.awaitSync(ctx)
		s.await(ctx, "readiness again", ready)
	}

	// Through mongos the fence is a validator, which the new collection takes along.
	s.goOn(ctx)
	moves := []func(){func() { c.Reshard(t, v1, "other", bson.D{{Key: "_id", Value: "hashed"}}) }}
	if soaks() {
		moves = append(moves, func() { c.MovePrimary(t, v1) })
	}
	// ended checks that so many attempts have ended, and why.
	ended := func(d upgradestate.Deployment, attempts int) {
		t.Helper()
		if u := d.Upgrade; u == nil || u.Failures != attempts || attempts > 0 && !strings.Contains(u.LastFailure, "replaced during the switch") {
			t.Fatalf("%d attempts should have ended for a replacement: %+v", attempts, u)
		}
	}
	for attempt, move := range moves {
		for reached := ""; reached != string(upgradestate.StepDrain); {
			if reached = controller.awaitReached(ctx); reached == string(upgradestate.StepSealSource) {
				t.Fatal("the switch goes on with a collection that was moved during it")
			}
			if reached != string(upgradestate.StepDrain) {
				controller.order(orderStep)
			}
		}
		d, err := s.record.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ended(d, attempt)
		if ns, _ := d.Namespace("v1"); record.FenceClass(ns.Kinds[0].Fence) != record.FenceValidator {
			t.Fatalf("the fence is %s", ns.Kinds[0].Fence)
		}
		if move(); attempt < len(moves)-1 {
			controller.order(orderStep)
		}
	}
	controller.order(orderRun)
	ended(s.await(ctx, "the last attempt to end", func(d upgradestate.Deployment) bool {
		return d.Upgrade == nil || d.Upgrade.Failures == len(moves)
	}), len(moves))
	s.await(ctx, "the flip", flipped("v2"))
	s.awaitAll(ctx, "v2", has)

	// After the switch, while no controller runs. The rollback takes the new collection along.
	s.kill(controller)
	before, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	insert("v2", 5)
	c.MovePrimary(t, s.db["v2"].Name())
	insert("v2", 5)
	s.controller("second", breakPoint{}).ready(ctx)
	s.await(ctx, "the moved collection of v2 to be followed", func(d upgradestate.Deployment) bool {
		return replacements(d, "v2", "unsharded") > replacements(before, "v2", "unsharded")
	})
	s.beginTo(ctx, "v1")
	s.await(ctx, "the flip back", flipped("v1"))
	s.awaitAll(ctx, "v1", has)
}
