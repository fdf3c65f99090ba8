package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/shardstest"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// TestReverseSyncStartsInSync: after a switch the reverse sync follows from the position that the
// switch noted. What is in the old namespace alone, because it was waived, stays there;
// what changed in the new one comes over, deletes too.
func TestReverseSyncStartsInSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for key, n := range map[string]int{"kept": 1, "gone": 2} {
			w.write(w.src, "v1", mutation("a1", key, n))
			w.write(w.dst, "v2", mutation("a2", key, n))
		}
		w.write(w.src, "v1", mutation("a1", "waived", -1))
		w.drained(w.src, syncer.Key(1, w.dir, 0))
		w.flip(w.position(w.dst))
		w.write(w.dst, "v2", mutation("a2", "kept", 5), mutation("a2", "made", 6),
			record.Mutation{Kind: "a2", Key: record.StringKey("gone")})
		back := w.reverseSync()
		w.eventually("the old namespace to follow", func() bool { return w.holds(w.src, "v1", "a1") == "kept=5 made=6 waived=-1" })
		back.stop(t)
		if got := w.holds(w.dst, "v2", "a2"); got != "kept=5 made=6" {
			t.Errorf("v2 holds %q: something came back", got)
		}
		plan, found, err := w.store.LoadPlan(t.Context(), syncer.Key(2, w.back, 0))
		w.check(err)
		if !found || !plan.InSync || len(plan.Ranges) != 0 {
			t.Errorf("plan %+v", plan)
		}
	})
}

// TestReverseSyncWithoutPosition compares everything instead.
func TestReverseSyncWithoutPosition(t *testing.T) {
	for name, position := range map[string]string{"none": "", "unreadable": "{"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.write(w.src, "v1", mutation("a1", "old", 1))
				w.write(w.dst, "v2", mutation("a2", "new", 2))
				w.flip(position)
				back := w.reverseSync()
				w.eventually("the old namespace to equal the new one", func() bool { return w.holds(w.src, "v1", "a1") == "new=2" })
				back.stop(t)
			})
		})
	}
}

func (w *world) write(db *memstore.Store, version string, ms ...record.Mutation) {
	w.t.Helper()
	w.check(db.Write(w.t.Context(), w.tokens(version), ms))
}

// holds is what a kind holds, in name order.
func (w *world) holds(db *memstore.Store, version, kind string) string {
	w.t.Helper()
	recs, err := db.List(w.t.Context(), record.ListRequest{Token: w.tokens(version)[kind]})
	for errors.Is(err, record.ErrFenced) { // it was renamed in between
		<-time.After(time.Millisecond)
		recs, err = db.List(w.t.Context(), record.ListRequest{Token: w.tokens(version)[kind]})
	}
	w.check(err)
	var out []string
	for _, r := range recs {
		out = append(out, fmt.Sprintf("%s=%d", r.Key, itemOf(r).N))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// drained stores that all shards of a direction have followed its source up to now.
func (w *world) drained(source *memstore.Store, dir syncer.DirectionKey) {
	w.t.Helper()
	now, err := source.Position(w.t.Context())
	w.check(err)
	cs := map[int]syncer.Checkpoint{}
	for n := range ring {
		cs[n] = syncer.Checkpoint{Position: now, Target: now, Verified: true}
	}
	w.check(w.store.SaveCheckpoints(w.t.Context(), dir, cs))
}

// reverseSync starts the engine that follows v2.
func (w *world) reverseSync() *running { return w.follow(2, w.dst, w.src, w.back, w.owner(0, 1, 2, 3)) }

// follow starts the engine of an epoch.
func (w *world) follow(epoch uint64, from, to *memstore.Store, dir transform.Direction, o *shardstest.Owner) *running {
	return w.followTo(epoch, from, to, dir, o)
}

// followTo is follow to any database.
func (w *world) followTo(epoch uint64, from *memstore.Store, to record.Namespace, dir transform.Direction, o *shardstest.Owner) *running {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &running{
		engine: syncer.New(syncer.Parts{
			Source: from, Target: to, Direction: dir, Deployments: w.store, Journal: w.store, Ownership: o,
			Comparer: verify.New(from, to, dir), Lease: func() coord.LeaseID { return 0 },
			Log: zaptest.NewLogger(w.t, zaptest.Level(zap.ErrorLevel)),
		}, syncer.Config{Owner: "c", Epoch: epoch, Ring: ring, Workers: 2, Page: 5, Copy: true}),
		cancel: cancel, done: make(chan error, 1),
	}
	go func() { r.done <- r.engine.Run(ctx) }()
	return r
}

// flip takes the record through a switch to v2, in which nobody does anything.
func (w *world) flip(position string) upgradestate.Deployment {
	w.t.Helper()
	return w.flipTo("v2", w.dir.Hash(), position)
}

func (w *world) flipTo(version, hash, position string) upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	d = w.apply(upgradestate.Begin{ID: fmt.Sprintf("u%d", d.Epoch), TargetVersion: version, TransformHash: hash})
	for range 100 {
		if d.CurrentVersion == version {
			return d
		}
		for _, a := range upgradestate.Actions(d) {
			switch a := a.(type) {
			case upgradestate.Execute:
				if w.beforeFence != nil && a.Pending.Reason == upgradestate.PendingFence {
					w.beforeFence(a.Place.Kind)
				}
				d = w.execute(w.t.Context(), a)
			case upgradestate.Hold:
				d = w.apply(upgradestate.Held{ID: a.ID})
			case upgradestate.AwaitReports:
				d = w.apply(upgradestate.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards})
			case upgradestate.StartSwitch:
				d = w.apply(a)
			case upgradestate.Drained:
				d = w.apply(a)
			case upgradestate.Flip:
				a.Switch.Position = position
				if w.beforeFlip != nil {
					w.beforeFlip()
				}
				d = w.apply(a)
			default:
				w.t.Fatalf("what is %T?", a)
			}
		}
	}
	w.t.Fatalf("no flip: %+v", d.Upgrade)
	return d
}

func (w *world) fencer(version string) record.Fencer {
	if version == "v1" {
		return w.src
	}
	return w.dst
}
