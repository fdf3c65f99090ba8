package syncer_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/syncer"
)

// A target whose collections lack something is not ready, reports that, and takes its
// reports back when that comes up later.
func TestTargetThatLacksAnIndex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", keyIn(0, 0), 1)
		var lacks atomic.Value
		lacks.Store("index x of a2, which is being built")
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.TargetLacks = func() string { return lacks.Load().(string) }
		})
		w.begin()
		w.eventually("everything else", func() bool {
			p, _ := e.progress(0)
			return p.WaitsFor == lacks.Load()
		})
		<-time.After(time.Minute)
		if got := w.ready(); len(got) > 0 {
			t.Errorf("ready are %v", got)
		}
		lacks.Store("")
		w.eventually("ready", w.allReady)
		lacks.Store("index x of a2, which is missing")
		w.eventually("the reports to be taken back", func() bool { return len(w.ready()) == 0 })
		e.stop(t)
	})
}

// Two records exchange their values of a unique index, and each is in the shard of another
// owner: neither can come over alone.
func TestUniqueValuesOfTwoOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		one, two := keyIn(0, 0), keyIn(2, 0)
		w.put("a1", one, 1)
		w.put("a1", two, 2)
		a, b := w.engine(w.owner(0, 1), nil), w.engine(w.owner(2, 3), nil)
		w.eventually("the copy", func() bool { return w.target("a2", one) == 1 && w.target("a2", two) == 2 && a.synced() && b.synced() })
		w.put("a1", one, 2)
		w.put("a1", two, 1)
		w.eventually("the exchange", func() bool {
			return w.target("a2", one) == 2 && w.target("a2", two) == 1 && len(w.parked()) == 0
		})
		a.stop(t)
		b.stop(t)
	})
}

// Everything is loaded when every owner has stored that its ranges are, and loaders are fenced.
func TestLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for shard := range ring {
			w.put("a1", keyIn(shard, 0), shard)
		}
		copied := func() bool {
			d, err := w.store.Get(t.Context())
			w.check(err)
			yes, err := syncer.Loaded(t.Context(), w.store, d, "v2", syncer.Key(1, w.dir, 0))
			w.check(err)
			return yes
		}
		if copied() {
			t.Error("copied before there is a plan")
		}
		a := w.engine(w.owner(0, 1), nil)
		w.eventually("a part of the copy", func() bool {
			ps := a.engine.Progress()
			return len(ps) == 2 && ps[0].State == "comparing" && ps[1].State == "comparing"
		})
		<-time.After(time.Minute)
		if copied() {
			t.Error("copied, although nobody owns half of the shards")
		}
		b := w.engine(w.owner(2, 3), nil)
		w.eventually("the rest", copied)
		a.stop(t)
		b.stop(t)
	})
}

// Neither side is compared before all shards are copied: the target's ranges are cut by what is
// there, and what a loader may still bring would not be seen.
func TestTargetIsCutWhenAllIsCopied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for shard := range ring {
			w.put("a1", keyIn(shard, 0), shard)
		}
		cut := func() bool {
			_, found, err := w.store.LoadPlan(t.Context(), syncer.Key(1, w.dir, 0)+"-verify")
			w.check(err)
			return found
		}
		a := w.engine(w.owner(0, 1), nil)
		<-time.After(time.Minute)
		for _, p := range a.engine.Progress() {
			if p.WaitsFor != "comparison, when all shards are copied" {
				t.Errorf("shard %d waits for %q, although nobody owns half of the shards", p.Shard, p.WaitsFor)
			}
		}
		if cut() {
			t.Error("the target is cut before all is copied")
		}
		b := w.engine(w.owner(2, 3), nil)
		w.eventually("all to be compared", func() bool { return a.synced() && b.synced() })
		if !cut() {
			t.Error("the target is compared without a plan")
		}
		a.stop(t)
		b.stop(t)
	})
}
