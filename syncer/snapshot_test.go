package syncer_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/shardstest"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// snapshotEngine starts the engine of an upgrade from v2 to the snapshot of v1. The
// commands that it sends to a database are counted.
func (w *world) snapshotEngine(o *shardstest.Owner, sent *faultstore.Counter) *running {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &running{
		engine: syncer.New(syncer.Parts{
			Source: faultstore.Wrap(w.dst, sent), Target: faultstore.Wrap(w.src, sent), Direction: w.back,
			Deployments: w.store, Journal: w.store, Ownership: o,
			Comparer: verify.New(w.dst, w.src, w.back), Lease: func() coord.LeaseID { return 0 },
			Log: zaptest.NewLogger(w.t, zaptest.Level(zap.ErrorLevel)),
		}, syncer.Config{Owner: "c", Epoch: 2, Ring: ring, Copy: true, Snapshot: true}),
		cancel: cancel, done: make(chan error, 1),
	}
	go func() { r.done <- r.engine.Run(ctx) }()
	return r
}

// contents are the records of a version as they are stored.
func (w *world) contents(ns record.Namespace, version string) map[string]bson.Raw {
	all := map[string]bson.Raw{}
	for kind := range w.tokens(version) {
		for key, doc := range w.everything(ns, version, kind) {
			all[kind+"/"+key] = bytes.Clone(doc)
		}
	}
	return all
}

// step takes the operations and steps of a switch that no report causes.
func (w *world) step() {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	for _, a := range upgradestate.Actions(d) {
		switch a := a.(type) {
		case upgradestate.Execute:
			w.execute(w.t.Context(), a)
		case upgradestate.Hold:
			w.apply(upgradestate.Held{ID: a.ID})
		case upgradestate.StartSwitch:
			w.apply(a)
		case upgradestate.Drained:
			w.apply(a)
		case upgradestate.Flip:
			w.apply(a)
		}
	}
}

// TestSnapshot: the rollback to the old data leaves both namespaces byte for byte as they
// are, and an upgrade that begins again afterwards gets everything made anew.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.src, "v1", mutation("a1", "both", 1), mutation("a1", "gone", 2))
		w.write(w.dst, "v2", mutation("a2", "both", 1), mutation("a2", "gone", 2))
		w.flip(w.position(w.dst)) // to v2
		w.write(w.dst, "v2", mutation("a2", "both", 10), mutation("a2", "made", 3),
			record.Mutation{Kind: "a2", Key: record.StringKey("gone")})
		old, left := w.contents(w.src, "v1"), w.contents(w.dst, "v2")
		all, sent := w.owner(0, 1, 2, 3), faultstore.Count(faultstore.Never())
		w.apply(upgradestate.Begin{ID: "s", TargetVersion: "v1", TransformHash: w.back.Hash(), Snapshot: true})
		e := w.snapshotEngine(all, sent)
		w.eventually("ready", w.allReady)
		w.eventually("the flip", func() bool {
			w.step()
			d, err := w.store.Get(t.Context())
			w.check(err)
			return d.CurrentVersion == "v1"
		})
		if err := <-e.done; err != nil {
			t.Errorf("the engine ended with %v", err)
		}
		if n := sent.Seen(); n > 0 {
			t.Errorf("%d commands were sent to the databases", n)
		}
		same := func(a, b bson.Raw) bool { return bytes.Equal(a, b) }
		for version, was := range map[string]map[string]bson.Raw{"v1": old, "v2": left} {
			now := w.contents(w.databaseOf(version), version)
			if len(now) != len(was) {
				t.Errorf("%s has %d records, had %d", version, len(now), len(was))
			}
			for key := range was {
				if !same(now[key], was[key]) {
					t.Errorf("%s: %s is %s, was %s", version, key, now[key], was[key])
				}
			}
		}
		if _, found, err := w.store.LoadPlan(t.Context(), syncer.Key(2, w.back, 0)); err != nil || found {
			t.Errorf("a plan was made: %t, %v", found, err)
		}
		// Forward again, when somebody begins it.
		w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: w.dir.Hash()}})
		w.apply(upgradestate.Begin{ID: "again", TargetVersion: "v2", TransformHash: w.dir.Hash()})
		again := w.follow(3, w.src, w.dst, w.dir, all)
		w.eventually("ready", w.allReady)
		if got := w.holds(w.dst, "v2", "a2"); got != "both=1 gone=2" {
			t.Errorf("v2 holds %q", got)
		}
		again.stop(t)
	})
}

func (w *world) databaseOf(version string) record.Namespace {
	if version == "v1" {
		return w.src
	}
	return w.dst
}

// TestSnapshotNeedsOwners: an upgrade to the snapshot goes through the same steps, and each
// shard is reported by its owner alone.
func TestSnapshotNeedsOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.flip(w.position(w.dst))
		w.apply(upgradestate.Begin{ID: "s", TargetVersion: "v1", TransformHash: w.back.Hash(), Snapshot: true})
		e := w.snapshotEngine(w.owner(0, 1, 2), faultstore.Count(faultstore.Never()))
		w.eventually("three are ready", func() bool { return slices.Equal(w.ready(), []int{0, 1, 2}) })
		<-time.After(3 * time.Second)
		if w.allReady() {
			t.Error("a shard is ready that nobody owns")
		}
		e.stop(t)
	})
}

// TestOtherMode: an engine ends when the upgrade that runs is not of its mode, so that what
// goes to a snapshot is not synced, and the other way round.
func TestOtherMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.flip(w.position(w.dst))
		all := w.owner(0, 1, 2, 3)
		back := w.follow(2, w.dst, w.src, w.back, all)
		w.write(w.dst, "v2", mutation("a2", "before", 1))
		w.eventually("the sync", func() bool { return w.holds(w.src, "v1", "a1") == "before=1" })
		w.apply(upgradestate.Begin{ID: "s", TargetVersion: "v1", TransformHash: w.back.Hash(), Snapshot: true})
		if err := <-back.done; err != nil {
			t.Errorf("the engine that syncs ended with %v", err)
		}
		snapshot := w.snapshotEngine(all, faultstore.Count(faultstore.Never()))
		w.eventually("ready", w.allReady)
		w.write(w.dst, "v2", mutation("a2", "after", 2))
		<-time.After(5 * time.Second)
		if got := w.holds(w.src, "v1", "a1"); got != "before=1" {
			t.Errorf("v1 holds %q while the snapshot is gone back to", got)
		}
		w.apply(upgradestate.Abort{ID: "s"})
		if err := <-snapshot.done; err != nil {
			t.Errorf("the engine of the snapshot ended with %v", err)
		}
		on := w.follow(2, w.dst, w.src, w.back, all)
		w.eventually("the sync goes on", func() bool { return w.holds(w.src, "v1", "a1") == "after=2 before=1" })
		on.stop(t)
	})
}
