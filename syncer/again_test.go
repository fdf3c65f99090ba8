package syncer_test

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

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
