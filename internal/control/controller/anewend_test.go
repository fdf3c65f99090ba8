package controller

import (
	"context"
	"testing"
	"time"

	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/syncer"
	us "dbcontroller.dev/upgradestate"
)

// TestEndAnew: a replaced collection is shown until all shards have published that they are compared
// since, and have stored it. What they published of an earlier copy does not count.
func TestEndAnew(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Begin(t)
	d := w.Apply(t, us.Replace{Collections: []us.Replaced{{Kind: "packages", Was: "a1", Is: "a2"}}})
	to, _ := us.Followed(d)
	images, bound := us.ImagesOf(d, to.TargetVersion)
	if us.OpenAnew(d) == nil || !bound {
		t.Fatalf("nothing is copied anew: %+v", d)
	}
	lease, err := w.Coord.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Close(context.Background()) }()
	publish := func(generation uint64, states ...string) {
		t.Helper()
		var ps []syncer.Progress
		for shard, state := range states {
			ps = append(ps, syncer.Progress{Shard: shard, Owner: "c", State: state, Epoch: d.Epoch, Generation: generation})
		}
		if err := w.Store.PublishProgress(t.Context(), "c", ps, lease.ID()); err != nil {
			t.Fatal(err)
		}
	}
	save := func(cs map[int]syncer.Checkpoint) {
		t.Helper()
		if err := w.Store.SaveCheckpoints(t.Context(), syncer.KeyIn(d, to), cs); err != nil {
			t.Fatal(err)
		}
	}
	s := &successors{deployment: w.Store}
	open := func(what string, want bool) {
		t.Helper()
		if err := s.endAnew(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		now, err := w.Store.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if is := us.OpenAnew(now) != nil; is != want {
			t.Errorf("%s: open is %t, want %t", what, is, want)
		}
	}
	done := syncer.Checkpoint{Verified: true}
	open("nothing is published", true)
	save(map[int]syncer.Checkpoint{0: done, 1: done, 2: done})
	publish(images.Generation, "following", "ready", "ready", "comparing")
	open("one is compared", true)
	publish(images.Generation-1, "following", "ready", "ready", "ready")
	open("of an earlier copy", true)
	publish(images.Generation, "following", "ready", "ready", "ready")
	open("one has not stored it", true)
	save(map[int]syncer.Checkpoint{3: done})
	open("all", false)
	open("once more", false)
}
