package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/shardstest"
	"dbcontroller.dev/internal/store/memstore"
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

// confirmFences does what the driver does right before the flip. The marker of a fence that keeps the
// kind's name comes again.
func (w *world) confirmFences() {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	ns, _ := d.Namespace("v1")
	for _, k := range ns.Kinds {
		w.check(w.src.Fence(w.t.Context(), record.Fence{
			Class: record.FenceClass(k.Fence), Token: record.Token{Kind: k.Kind, Name: k.Kind, ID: k.ID, Fixed: true}, To: k.Fenced, Standing: true,
		}))
	}
}

// TestWayBackKeepsWhatTheApplicationWrote: the stored position of the ended direction may be older than
// writes of the application from before the fence. They are not foreign, and so not made anew from v2,
// which lacks a waived one. A late delete before the flip is foreign.
func TestWayBackKeepsWhatTheApplicationWrote(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		class     record.FenceClass
		restarted bool // the engine of the ended direction, which then counts late deletes
	}{
		{record.FenceView, false},
		{record.FenceWriteBlock, false},
		{record.FenceValidator, false},
		{record.FenceValidator, true},
	} {
		t.Run(fmt.Sprint(tt.class, ", restarted ", tt.restarted), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := behind(t, tt.class, 3)
				for i := range 9 {
					w.check(w.src.Foreign().Insert(t.Context(), "a1", mutation("a1", fmt.Sprint("item-", i), i).Doc))
				}
				o := w.owner(0, 1, 2, 3)
				forward := w.engine(o, nil)
				w.eventually("checkpoints", func() bool { return w.stored(syncer.Key(1, w.dir, 0)) })
				forward.stop(t)
				w.check(w.src.Foreign().Insert(t.Context(), "a1", mutation("a1", "item-9", 9).Doc)) // v2 never gets it
				w.beforeFlip = func() {
					if tt.class == record.FenceValidator {
						w.deleteLate("item-1")
					}
					w.confirmFences()
				}
				w.flip(w.position(w.dst))
				if tt.restarted {
					forward = w.engine(o, nil)
					w.eventually("the count in a checkpoint", func() bool {
						n := int64(0)
						for shard := range ring {
							c, _, err := w.store.LoadCheckpoint(t.Context(), syncer.Key(1, w.dir, 0), shard)
							w.check(err)
							n += c.LateDeletes
						}
						return n == 1
					})
					forward.stop(t)
				}
				back := w.follow(2, w.dst, w.src, w.back, o)
				w.write(w.dst, "v2", record.Mutation{Kind: "a2", Key: record.StringKey("item-3")})
				w.eventually("a delete of v2, and what was deleted late", func() bool {
					ids := w.ids("a1")
					return slices.Contains(ids, "item-1") && !slices.Contains(ids, "item-3")
				})
				<-time.After(time.Minute)
				if n := w.documents("a1"); n != 10 {
					t.Errorf("v1 has %d of 10 records: %v", n, w.ids("a1"))
				}
				back.stop(t)
			})
		})
	}
}

// TestWayBackRestoresLateDeletesBeforeTheFlip: the place where the direction ended is behind its fence.
// The marker that comes again before the flip is not the end of the application's changes, and a late
// delete between the two is restored. Earlier binaries did not store the markers before that place.
func TestWayBackRestoresLateDeletesBeforeTheFlip(t *testing.T) {
	t.Parallel()
	for _, earlier := range []bool{false, true} {
		t.Run(fmt.Sprint("checkpoints of an earlier binary ", earlier), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := behindValidator(t, 3)
				for i := range 9 {
					w.check(w.src.Foreign().Insert(t.Context(), "a1", mutation("a1", fmt.Sprint("item-", i), i).Doc))
				}
				o := w.owner(0, 1, 2, 3)
				key := syncer.Key(1, w.dir, 0)
				forward := w.engine(o, nil)
				w.eventually("checkpoints", func() bool { return w.stored(key) })
				w.beforeFlip = func() {
					w.eventually("the fence in all checkpoints", func() bool {
						for n := range ring {
							if c, _, err := w.store.LoadCheckpoint(t.Context(), key, n); err != nil || c.Markers["a1"] == "" {
								return false
							}
						}
						return true
					})
					forward.stop(t)
					w.deleteLate("item-1")
					w.confirmFences()
				}
				w.flip(w.position(w.dst))
				if earlier {
					cs := map[int]syncer.Checkpoint{}
					for n := range ring {
						c, _, err := w.store.LoadCheckpoint(t.Context(), key, n)
						w.check(err)
						c.Left = c.Position
						cs[n] = c
					}
					w.check(w.store.SaveCheckpoints(t.Context(), key, cs))
				}
				back := w.follow(2, w.dst, w.src, w.back, o)
				w.eventually("the record in v1 again", func() bool { return slices.Contains(w.ids("a1"), "item-1") })
				back.stop(t)
			})
		})
	}
}

// betweenFences is a database whose stream of the target's changes ends behind the first fence.
type betweenFences struct {
	*memstore.Store
	marked chan struct{} // closed there
	once   *sync.Once
}

func (b betweenFences) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	st, err := b.Store.Follow(ctx, from, toks)
	return &fencedStream{Stream: st, marked: b.marked, once: b.once}, err
}

type fencedStream struct {
	record.Stream
	marked chan struct{}
	once   *sync.Once
	ended  bool
}

func (s *fencedStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	if s.ended {
		<-ctx.Done()
		return record.ChangeBatch{}, ctx.Err()
	}
	b, err := s.Stream.Next(ctx)
	if slices.ContainsFunc(b.Changes, func(c record.Change) bool { return c.Marker != "" }) {
		s.ended = true
		s.once.Do(func() { close(s.marked) })
	}
	return b, err
}

// TestWayBackStopsBetweenFences: a controller ends when it has read the fence of one kind and not that of
// the next. Its successor begins before both, or it would take changes of the application before the
// second fence for foreign ones.
func TestWayBackStopsBetweenFences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := behindOf(t, memstore.Options{FixedFence: record.FenceValidator, Changes: 1}, 0, "a", "b")
		o := w.owner(0, 1, 2, 3)
		forward := w.engine(o, nil)
		w.eventually("checkpoints", func() bool { return w.stored(syncer.Key(1, w.dir, 0)) })
		forward.stop(t)
		fenced := map[string]bool{}
		w.beforeFence = func(kind string) {
			// v2 never gets it.
			if len(fenced) == 1 && !fenced[kind] {
				w.check(w.src.Foreign().Insert(t.Context(), kind, mutation(kind, "between", 9).Doc))
			}
			fenced[kind] = true
		}
		w.flip(w.position(w.dst))
		slow := betweenFences{w.src, make(chan struct{}), new(sync.Once)}
		key := syncer.Key(2, w.back, 0)
		_, found, err := w.store.LoadPlan(t.Context(), key)
		w.check(err)
		if found {
			t.Fatal("there is a plan before the way back")
		}
		// The plan reads all of the changes.
		back := w.follow(2, w.dst, w.src, w.back, w.owner())
		w.eventually("a plan", func() (found bool) {
			_, found, err = w.store.LoadPlan(t.Context(), key)
			w.check(err)
			return found
		})
		back.stop(t)
		back = w.followTo(2, w.dst, slow, w.back, o)
		<-slow.marked
		<-time.After(time.Minute) // checkpoints of idle shards are due
		back.stop(t)
		back = w.follow(2, w.dst, w.src, w.back, o)
		<-time.After(time.Minute)
		if ids := append(w.ids("a1"), w.ids("b1")...); !slices.Contains(ids, "between") {
			t.Errorf("v1 has %v: the application's record is gone", ids)
		}
		back.stop(t)
	})
}
