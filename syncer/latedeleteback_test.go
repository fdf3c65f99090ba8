package syncer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/shardstest"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// deleteLate deletes documents of v1 as an application does that has not heard of the switch.
func (w *world) deleteLate(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		w.check(w.src.Foreign().Delete(w.t.Context(), "a1", mutation("a1", id, 0).Doc.Lookup("_id")))
	}
}

// switched is a world in which v2 serves and v1 is behind a fence that lets deletes through. It
// returns the ended direction, which still runs, and its owner.
func switched(t *testing.T) (w *world, forward *running, o *shardstest.Owner) {
	t.Helper()
	w = behindValidator(t, 3)
	for i := range 9 {
		w.check(w.src.Foreign().Insert(t.Context(), "a1", mutation("a1", fmt.Sprint("item-", i), i).Doc))
	}
	o = w.owner(0, 1, 2, 3)
	forward = w.engine(o, nil)
	w.eventually("the copy", func() bool { return len(forward.engine.Progress()) == ring && forward.synced() })
	w.eventually("checkpoints", func() bool { return w.stored(syncer.Key(1, w.dir, 0)) })
	w.flip(w.position(w.dst))
	return w, forward, o
}

// stored reports whether all shards of a direction have stored that they are complete.
func (w *world) stored(dir syncer.DirectionKey) bool {
	for n := range ring {
		c, found, err := w.store.LoadCheckpoint(w.t.Context(), dir, n)
		w.check(err)
		if !found || !c.Verified {
			return false
		}
	}
	return true
}

// TestWayBackRestoresLateDeletes: the way back restores late deletes without the engine of the ended
// direction. That engine may have died, or may never have heard of its successor.
func TestWayBackRestoresLateDeletes(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before it follows", "while it follows", "between runs"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, forward, o := switched(t)
				forward.stop(t)
				if when == "before it follows" {
					w.deleteLate("item-1", "item-2", "item-3")
				}
				back := w.follow(2, w.dst, w.src, w.back, o)
				if when != "before it follows" {
					w.eventually("the reverse sync", back.synced)
				}
				switch when {
				case "while it follows":
					w.deleteLate("item-1", "item-2", "item-3")
				case "between runs":
					back.stop(t)
					w.deleteLate("item-1", "item-2", "item-3")
					back = w.follow(2, w.dst, w.src, w.back, o)
				}
				w.eventually("the records in v1 again", func() bool { return w.documents("a1") == 10 })
				back.stop(t)
			})
		})
	}
}

// TestWayBackStartsBeforeLateDeletes: the engine of the ended direction has counted a late delete and
// stored its place behind it before there is a way back. The way back restores the record.
func TestWayBackStartsBeforeLateDeletes(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, forward, o := switched(t)
				if restarted {
					forward.stop(t)
					forward = w.engine(o, nil)
				}
				w.deleteLate("item-1", "item-2")
				counted := func() (n int64) {
					for _, p := range forward.engine.Progress() {
						n += p.LateDeletes
					}
					return n
				}
				w.eventually("the count", func() bool { return counted() == 2 })
				<-time.After(time.Minute) // idle checkpoints are due meanwhile
				back := w.follow(2, w.dst, w.src, w.back, o)
				w.eventually("the records in v1 again", func() bool { return w.documents("a1") == 10 })
				w.write(w.dst, "v2", record.Mutation{Kind: "a2", Key: record.StringKey("item-3")})
				w.eventually("a delete of v2", func() bool { return w.documents("a1") == 9 })
				w.deleteLate("item-4")
				w.eventually("another record in v1 again", func() bool { return w.documents("a1") == 9 })
				<-time.After(time.Minute)
				if n := counted(); n != 3 {
					t.Errorf("%d late deletes were counted, 3 passed", n)
				}
				forward.stop(t)
				back.stop(t)
			})
		})
	}
}

// stalled is a database whose writes by controllers wait.
type stalled struct {
	record.Namespace
	goOn chan struct{}
}

func (s stalled) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	select {
	case <-s.goOn:
		return s.Namespace.Apply(ctx, b)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestRollbackWaitsForLateDeletes: no shard drains for a rollback before the records that were deleted
// late are restored.
func TestRollbackWaitsForLateDeletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, forward, o := switched(t)
		slow := stalled{w.src, make(chan struct{})}
		back := w.followTo(2, w.dst, slow, w.back, o)
		forward.engine.HandOver()
		w.apply(upgradestate.Begin{ID: "back", TargetVersion: "v1", TransformHash: w.back.Hash()})
		w.eventually("ready", w.allReady)
		w.deleteLate("item-1", "item-2", "item-3")
		now, err := w.src.Position(t.Context())
		w.check(err)
		w.apply(upgradestate.StartSwitch{ID: "back", TargetSince: fmt.Sprintf(`{"at":%q}`, now.At)})
		w.apply(upgradestate.Held{ID: "back"})
		d, err := w.store.Get(t.Context())
		w.check(err)
		for _, a := range upgradestate.Actions(d) {
			if a, ok := a.(upgradestate.Execute); ok {
				w.execute(t.Context(), a)
			}
		}
		<-time.After(10 * time.Second)
		if n := len(w.ready()); n == ring && w.documents("a1") < 10 {
			t.Errorf("all shards are drained, and v1 has %d of 10 records", w.documents("a1"))
		}
		close(slow.goOn)
		w.eventually("drained", w.allReady)
		if n := w.documents("a1"); n != 10 {
			t.Errorf("v1 has %d of 10 records after the drain", n)
		}
		forward.stop(t)
		back.stop(t)
	})
}

// TestWayBackKeepsWhatTheApplicationWrote: the stored position of the ended direction may be older than
// writes of the application from before the fence. They are not foreign, and so not made anew from v2,
// which lacks a waived one.
func TestWayBackKeepsWhatTheApplicationWrote(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		class     record.FenceClass
		restarted bool // the ended direction, which only then sees its end
	}{{record.FenceView, false}, {record.FenceValidator, false}, {record.FenceValidator, true}} {
		t.Run(fmt.Sprintf("%s, restarted %t", tc.class, tc.restarted), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := behind(t, tc.class, 3)
				for i := range 9 {
					w.check(w.src.Foreign().Insert(t.Context(), "a1", mutation("a1", fmt.Sprint("item-", i), i).Doc))
				}
				o := w.owner(0, 1, 2, 3)
				forward := w.engine(o, nil)
				w.eventually("checkpoints", func() bool { return w.stored(syncer.Key(1, w.dir, 0)) })
				forward.stop(t)
				w.check(w.src.Foreign().Insert(t.Context(), "a1", mutation("a1", "item-9", 9).Doc)) // v2 never gets it
				w.flip(w.position(w.dst))
				if tc.restarted {
					forward = w.engine(o, nil)
					w.eventually("its end", w.leftStored)
					forward.stop(t)
				}
				back := w.follow(2, w.dst, w.src, w.back, o)
				w.write(w.dst, "v2", record.Mutation{Kind: "a2", Key: record.StringKey("item-3")})
				w.eventually("a delete of v2", func() bool { return w.documents("a1") <= 10 })
				<-time.After(time.Minute)
				if n := w.documents("a1"); n != 10 {
					t.Errorf("v1 has %d of 10 records", n)
				}
				back.stop(t)
			})
		})
	}
}

// leftStored reports whether the checkpoints of the first direction have its end.
func (w *world) leftStored() bool {
	for n := range ring {
		c, found, err := w.store.LoadCheckpoint(w.t.Context(), syncer.Key(1, w.dir, 0), n)
		w.check(err)
		if !found || c.Left.IsZero() || c.LeftMarkers == nil {
			return false
		}
	}
	return true
}

// TestFencesThatRepeat: the driver sets a fence of class validator again right before the flip, and its
// marker comes again. A late delete between the two is restored, whether the stored place of the ended
// direction is before the fence or behind it.
func TestFencesThatRepeat(t *testing.T) {
	t.Parallel()
	for _, drained := range []bool{false, true} {
		t.Run(fmt.Sprint("the place is behind the fence: ", drained), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := behindValidator(t, 3)
				for i := range 9 {
					w.check(w.src.Foreign().Insert(t.Context(), "a1", mutation("a1", fmt.Sprint("item-", i), i).Doc))
				}
				o := w.owner(0, 1, 2, 3)
				forward := w.engine(o, nil)
				w.eventually("checkpoints", func() bool { return w.stored(syncer.Key(1, w.dir, 0)) })
				if !drained {
					forward.stop(t)
				}
				w.beforeFlip = func() {
					if drained {
						<-time.After(time.Minute) // its checkpoints are behind the fence
						forward.stop(t)
					}
					w.deleteLate("item-1", "item-2")
					d, err := w.store.Get(t.Context())
					w.check(err)
					v1, _ := d.Namespace("v1")
					k, _ := v1.Kind("a1")
					w.check(w.src.Fence(t.Context(), record.Fence{
						Class: record.FenceValidator, To: k.Fenced, Standing: true,
						Token: record.Token{Kind: "a1", Name: "a1", ID: k.ID, Fixed: true},
					}))
				}
				w.flip(w.position(w.dst))
				back := w.follow(2, w.dst, w.src, w.back, o)
				w.eventually("the records in v1 again", func() bool { return w.documents("a1") == 10 })
				back.stop(t)
			})
		})
	}
}
