package syncer_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// waived is a world in which v2 serves, and "waived" is in v1 alone. It returns what was
// parked of it.
func (w *world) waived(position func() string) syncer.Parked {
	w.t.Helper()
	w.put("a1", "gone", 1)
	w.put("a1", "waived", -1)
	first := w.engine(w.owner(0, 1, 2, 3), nil)
	w.eventually("the poison is parked", func() bool { return len(w.parked()) == 1 && w.holds(w.dst, "v2", "a2") == "gone=1" })
	p := w.parked()[0]
	p.Waived = true
	w.check(w.store.Park(w.t.Context(), p))
	w.flip(position())
	first.stop(w.t)
	w.freeAll()
	return p
}

// losing stops an engine, has it miss a delete and a new record of v2, and starts another.
func (w *world) losing(back *running) *running {
	w.t.Helper()
	w.eventually("ready", func() bool { p, _ := back.progress(0); return p.State == "ready" })
	back.stop(w.t)
	w.write(w.dst, "v2", record.Mutation{Kind: "a2", Key: record.StringKey("gone")}, mutation("a2", "made", 2))
	w.dst.Cluster().LoseHistory()
	w.freeAll()
	return w.reverseSync()
}

func (w *world) freeAll() {
	for n := range ring {
		w.free(n)
	}
}

func (w *world) parkedIn(epoch uint64, dir transform.Direction) []syncer.Parked {
	w.t.Helper()
	list, err := w.store.Parked(w.t.Context(), syncer.Key(epoch, dir, 0), -1)
	w.check(err)
	return list
}

// TestWaivedOutlastsALostHistory: what a waiver left in the old namespace alone stays there
// when the rollback, which began in sync, has to compare everything after all.
func TestWaivedOutlastsALostHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.waived(func() string { return w.position(w.dst) })
		again := w.losing(w.reverseSync())
		w.eventually("the rescan", func() bool { p, _ := again.progress(0); return p.State == "ready" })
		if got := w.holds(w.src, "v1", "a1"); got != "made=2 waived=-1" {
			t.Errorf("v1 holds %q", got)
		}
		again.stop(t)
	})
}

// TestWaivedOutlastsAnEpoch: an epoch without a switch begins, as after a move of a collection, and
// controllers forget what is older. The next rollback compares everything, and leaves the waived
// record alone. But a record that v2 made by that name, and deleted meanwhile, is deleted in v1.
func TestWaivedOutlastsAnEpoch(t *testing.T) {
	for name, made := range map[string]bool{"untouched": false, "made and deleted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.waived(func() string { return w.position(w.dst) })
				back := w.reverseSync()
				w.eventually("it is kept", func() bool { list := w.parkedIn(2, w.back); return len(list) == 1 && list[0].Kept })
				want := "made=2 waived=-1"
				if made {
					want = "made=2"
					w.write(w.dst, "v2", mutation("a2", "waived", 7))
					w.eventually("it follows", func() bool { return w.holds(w.src, "v1", "a1") == "gone=1 waived=7" && len(w.parkedIn(2, w.back)) == 0 })
				}
				w.eventually("ready", func() bool { p, _ := back.progress(0); return p.State == "ready" })
				back.stop(t)
				d, err := w.store.Get(t.Context())
				w.check(err)
				d = w.apply(upgradestate.FoundRestored{Restored: upgradestate.Restored{Version: "v2", What: "a test"}, Epoch: d.Epoch})
				if d.Epoch != 4 {
					t.Fatalf("epoch %d", d.Epoch)
				}
				w.check(w.store.ForgetBefore(t.Context(), upgradestate.OldestDirection(d)))
				w.write(w.dst, "v2", mutation("a2", "made", 2), record.Mutation{Kind: "a2", Key: record.StringKey("gone")})
				if made {
					w.write(w.dst, "v2", record.Mutation{Kind: "a2", Key: record.StringKey("waived")})
				}
				w.apply(upgradestate.Begin{ID: "again", TargetVersion: "v1", TransformHash: w.back.Hash()})
				w.freeAll()
				again := w.follow(4, w.dst, w.src, w.back, w.owner(0, 1, 2, 3))
				w.eventually("all are ready", func() bool { return len(w.ready()) == ring })
				if got := w.holds(w.src, "v1", "a1"); got != want {
					t.Errorf("v1 holds %q, want %q", got, want)
				}
				again.stop(t)
			})
		})
	}
}

// TestWaivedOutlastsAnUnreadableEntry: the entry that says that a record is kept cannot be read any
// more when everything is compared. The record stays, and the entry is there again.
func TestWaivedOutlastsAnUnreadableEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.waived(func() string { return w.position(w.dst) })
		back := w.reverseSync()
		w.eventually("it is kept", func() bool { list := w.parkedIn(2, w.back); return len(list) == 1 && list[0].Kept })
		spoil := func() {
			kvs, _, err := w.coord.List(t.Context(), "")
			w.check(err)
			spoilt := 0
			for _, kv := range kvs {
				if strings.Contains(kv.Key, "/parked/") && strings.Contains(string(kv.Value), `"kept":true`) {
					_, err := w.coord.Commit(t.Context(), nil, []coord.Op{{Key: kv.Key, Value: []byte("{")}})
					w.check(err)
					spoilt++
				}
			}
			if spoilt != 1 {
				t.Fatalf("%d entries are spoilt", spoilt)
			}
		}
		w.eventually("ready", func() bool { p, _ := back.progress(0); return p.State == "ready" })
		back.stop(t)
		spoil()
		w.write(w.dst, "v2", record.Mutation{Kind: "a2", Key: record.StringKey("gone")}, mutation("a2", "made", 2))
		w.dst.Cluster().LoseHistory()
		w.freeAll()
		again := w.reverseSync()
		w.eventually("the rescan", func() bool { p, _ := again.progress(0); return p.State == "ready" })
		if got := w.holds(w.src, "v1", "a1"); got != "made=2 waived=-1" {
			t.Errorf("v1 holds %q", got)
		}
		if list := w.parkedIn(2, w.back); len(list) != 1 || !list[0].Kept {
			t.Errorf("parked is %+v", list)
		}
		again.stop(t)
	})
}

// TestKeptIsNoWaiver: what becomes of such a record in the new version, and cannot be
// brought back, is not waived with it.
func TestKeptIsNoWaiver(t *testing.T) {
	for name, level := range map[string]bool{"level": true, "compared": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.waived(func() string {
					if level {
						return w.position(w.dst)
					}
					return ""
				})
				back := w.reverseSync()
				w.eventually("it is kept", func() bool {
					list := w.parkedIn(2, w.back)
					return len(list) == 1 && list[0].Kept && list[0].Waived
				})
				w.write(w.dst, "v2", mutation("a2", "waived", -5))
				w.eventually("its new state is parked", func() bool {
					list := w.parkedIn(2, w.back)
					return len(list) == 1 && !list[0].Kept && !list[0].Waived
				})
				back.stop(t)
			})
		})
	}
}

// overflow means that more was waived with its kind than is listed.
func (w *world) overflow(p syncer.Parked) {
	w.t.Helper()
	p.Spec = syncer.OverflowSpec
	w.check(w.store.Park(w.t.Context(), p))
}

// TestMoreWasWaivedThanIsListed: nothing is compared then where it would be taken for
// deleted, and the next time everything is copied anew.
func TestMoreWasWaivedThanIsListed(t *testing.T) {
	t.Run("for want of a position", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.overflow(w.waived(func() string { return "" }))
			var refused *record.UnsupportedError
			if err := <-w.reverseSync().done; !errors.As(err, &refused) {
				t.Errorf("the rollback ended with %v", err)
			}
			if got := w.holds(w.src, "v1", "a1"); got != "gone=1 waived=-1" {
				t.Errorf("v1 holds %q", got)
			}
		})
	})
	t.Run("for want of the history", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.overflow(w.waived(func() string { return w.position(w.dst) }))
			again := w.losing(w.reverseSync())
			w.eventually("it says so", func() bool { p, _ := again.progress(0); return p.State == "rescan" && p.LastError != "" })
			if got := w.holds(w.src, "v1", "a1"); got != "gone=1 waived=-1" {
				t.Errorf("v1 holds %q", got)
			}
			again.stop(t)
		})
	})
	t.Run("the next time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			p := w.waived(func() string { return w.position(w.dst) })
			p.Spec = syncer.OverflowSpec
			w.check(w.store.Unpark(context.WithoutCancel(t.Context()), w.parkedIn(1, w.dir)[0]))
			w.check(w.store.Park(t.Context(), p))
			back := w.reverseSync()
			w.eventually("ready", func() bool { p, _ := back.progress(0); return p.State == "ready" })
			w.flipTo("v1", w.back.Hash(), w.position(w.src))
			back.stop(t)
			w.freeAll()
			again := w.follow(3, w.src, w.dst, w.dir, w.owner(0, 1, 2, 3))
			w.eventually("it is met again", func() bool {
				return slices.ContainsFunc(w.parkedIn(3, w.dir), func(p syncer.Parked) bool { return p.Spec >= 0 && !p.Waived })
			})
			again.stop(t)
		})
	})
}

// TestWaivedIsMetAgain: what one switch left behind by a waiver, and nobody has changed
// since the rollback, is parked before the next switch; once it is fixed it comes over.
func TestWaivedIsMetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", "kept", 1)
		w.put("a1", "waived", -1)
		all := w.owner(0, 1, 2, 3)
		first := w.engine(all, nil)
		w.eventually("the poison is parked", func() bool { return len(w.parked()) == 1 && w.holds(w.dst, "v2", "a2") == "kept=1" })
		waived := w.parked()[0]
		waived.Waived = true
		w.check(w.store.Park(t.Context(), waived))
		w.flip(w.position(w.dst))
		first.stop(t)
		back := w.follow(2, w.dst, w.src, w.back, all)
		w.write(w.dst, "v2", mutation("a2", "kept", 2))
		w.eventually("the old namespace to follow", func() bool { return w.holds(w.src, "v1", "a1") == "kept=2 waived=-1" })
		w.flipTo("v1", w.back.Hash(), w.position(w.src))
		back.stop(t)
		again := w.follow(3, w.src, w.dst, w.dir, all)
		parked := func() []syncer.Parked {
			list, err := w.store.Parked(t.Context(), syncer.Key(3, w.dir, 0), -1)
			w.check(err)
			return list
		}
		w.eventually("what was waived is parked again", func() bool {
			list := parked()
			return len(list) == 1 && list[0].Key == waived.Key && !list[0].Waived
		})
		w.put("a1", "waived", 7)
		w.eventually("it comes over", func() bool { return w.holds(w.dst, "v2", "a2") == "kept=2 waived=7" && len(parked()) == 0 })
		again.stop(t)
		plan, found, err := w.store.LoadPlan(t.Context(), syncer.Key(3, w.dir, 0))
		w.check(err)
		if !found || !plan.InSync {
			t.Errorf("plan %+v: everything is copied again", plan)
		}
	})
}

// TestWaivedIsNotTakenForDeleted: where everything is compared because the position of the
// switch is not known, what a waiver left in the old namespace alone stays there.
func TestWaivedIsNotTakenForDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", "gone", 1)
		w.put("a1", "waived", -1)
		all := w.owner(0, 1, 2, 3)
		first := w.engine(all, nil)
		w.eventually("the poison is parked", func() bool { return len(w.parked()) == 1 && w.holds(w.dst, "v2", "a2") == "gone=1" })
		waived := w.parked()[0]
		waived.Waived = true
		w.check(w.store.Park(t.Context(), waived))
		first.stop(t) // it takes reports back
		w.flip("")
		w.write(w.dst, "v2", record.Mutation{Kind: "a2", Key: record.StringKey("gone")}, mutation("a2", "made", 2))
		back := w.follow(2, w.dst, w.src, w.back, all)
		w.eventually("everything is compared", func() bool {
			ps := back.engine.Progress()
			return len(ps) == ring && !slices.ContainsFunc(ps, func(p syncer.Progress) bool { return p.State != "ready" })
		})
		if got := w.holds(w.src, "v1", "a1"); got != "made=2 waived=-1" {
			t.Errorf("v1 holds %q", got)
		}
		w.write(w.dst, "v2", mutation("a2", "waived", 3))
		w.eventually("what becomes of it comes over", func() bool { return w.holds(w.src, "v1", "a1") == "made=2 waived=3" })
		back.stop(t)
	})
}

// otherHash is a direction as a binary with a corrected transformer has it.
type otherHash struct{ transform.Direction }

func (otherHash) Hash() string { return "corrected" }

// TestCorrectedTransformer: a rollback to correct the transformation gets every
// record made by the new one, also those that nobody has changed.
func TestCorrectedTransformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", "untouched", 1)
		w.write(w.dst, "v2", mutation("a2", "untouched", 666)) // as the first transformer made it
		w.flip(w.position(w.dst))
		w.flipTo("v1", w.back.Hash(), w.position(w.src))
		again := w.follow(3, w.src, w.dst, otherHash{w.dir}, w.owner(0, 1, 2, 3))
		w.eventually("the record is made anew", func() bool { return w.holds(w.dst, "v2", "a2") == "untouched=1" })
		again.stop(t)
	})
}

// position is what a switch notes of a database now.
func (w *world) position(db *memstore.Store) string {
	w.t.Helper()
	at, err := db.Position(w.t.Context())
	w.check(err)
	text, err := json.Marshal(at)
	w.check(err)
	return string(text)
}
