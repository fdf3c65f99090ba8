package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// deaf keeps an engine from hearing of changes while it is on.
func deaf() *faultstore.Toggle {
	return faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Watch, faultstore.Next))
}

// lose makes changes that no stream delivers again.
func (w *world) lose(db *memstore.Store, changes func(), ears ...*faultstore.Toggle) {
	w.t.Helper()
	for _, e := range ears {
		e.On()
	}
	<-time.After(2 * time.Second) // what was being waited for has come
	changes()
	db.Cluster().LoseHistory()
	for _, e := range ears {
		e.Off()
	}
}

// churn creates, changes and deletes items at random.
func (w *world) churn(rnd *rand.Rand, db *memstore.Store, version string, kinds ...string) {
	w.t.Helper()
	for range 120 {
		kind, key := kinds[rnd.IntN(len(kinds))], fmt.Sprintf("item-%d", rnd.IntN(60))
		m := record.Mutation{Kind: kind, Key: record.StringKey(key)}
		if rnd.IntN(3) > 0 {
			m = mutation(kind, key, rnd.IntN(1000))
		}
		w.write(db, version, m)
	}
}

// inSync fails the test unless both versions hold the same.
func (w *world) inSync() {
	w.t.Helper()
	for _, k := range []string{"a", "b"} {
		if got, want := w.holds(w.dst, "v2", k+"2"), w.holds(w.src, "v1", k+"1"); got != want {
			w.t.Errorf("kind %s: v2 holds\n%s\nwant\n%s", k, got, want)
		}
	}
}

// drain takes a running upgrade that is ready through the fences.
func (w *world) drain() {
	w.t.Helper()
	w.eventually("ready", w.allReady)
	w.apply(upgradestate.StartSwitch{ID: "u"})
	w.apply(upgradestate.Held{ID: "u"})
	for _, k := range []string{"a1", "b1", "c1"} {
		w.apply(w.fence(k))
	}
	w.eventually("drain", w.allReady)
}

// TestLostHistory: what was created, changed and deleted while the changes were lost is in
// the target before the shards report again, and nothing is copied twice.
func TestLostHistory(t *testing.T) {
	for seed := range raced.Seeds(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, rnd, ear := newWorld(t), rand.New(rand.NewPCG(seed, 1)), deaf()
				w.churn(rnd, w.src, "v1", "a1", "b1")
				var loaded atomic.Int64
				e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
					p.Source, p.Target = faultstore.Wrap(p.Source, ear), counting{p.Target, &loaded}
				})
				w.begin()
				w.eventually("ready", w.allReady)
				copied := loaded.Load()
				for range 2 {
					w.lose(w.src, func() { w.churn(rnd, w.src, "v1", "a1", "b1") }, ear)
					w.eventually("the loss", func() bool { return len(w.ready()) == 0 })
					p, _ := e.progress(0)
					if p.State != "rescan" || !strings.Contains(p.WaitsFor, "history was lost") {
						t.Errorf("progress %+v", p)
					}
					w.eventually("ready again", w.allReady)
					w.inSync()
				}
				w.churn(rnd, w.src, "v1", "a1", "b1")
				w.drain()
				w.inSync()
				if n := loaded.Load(); n != copied {
					t.Errorf("%d records were copied again", n-copied)
				}
				e.stop(t)
			})
		})
	}
}

// TestLostHistoryInTheCopy: what was copied before the loss is compared, what was not is
// copied once.
func TestLostHistoryInTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rnd, ear := newWorld(t), rand.New(rand.NewPCG(7, 1)), deaf()
		w.churn(rnd, w.src, "v1", "a1", "b1")
		for i := range 200 {
			w.put("a1", fmt.Sprintf("more-%d", i), i)
		}
		gate := faultstore.NewGate(2) // both workers, once
		held := faultstore.NewToggle(faultstore.On(gate, faultstore.Load))
		var loaded atomic.Int64
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = faultstore.Wrap(p.Source, ear)
			p.Target = faultstore.Wrap(counting{p.Target, &loaded}, held)
		})
		w.begin()
		w.eventually("some pages", func() bool { return loaded.Load() > 40 })
		held.On() // pages that were read before the loss are written after it
		<-gate.Held()
		<-gate.Held()
		w.lose(w.src, func() {
			w.churn(rnd, w.src, "v1", "a1", "b1")
			for i := range 50 {
				w.write(w.src, "v1", record.Mutation{Kind: "a1", Key: record.StringKey(fmt.Sprintf("more-%d", 4*i))})
			}
		}, ear)
		<-time.After(3 * time.Second)
		gate.Open()
		w.drain()
		w.inSync()
		e.stop(t)
	})
}

// TestLostHistoryOfSome: controllers lose the history at different times; the changes of
// one's shards are in the ranges of all.
func TestLostHistoryOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rnd := newWorld(t), rand.New(rand.NewPCG(3, 1))
		w.churn(rnd, w.src, "v1", "a1", "b1")
		ears := []*faultstore.Toggle{deaf(), deaf()}
		var es []*running
		for i, ear := range ears {
			es = append(es, w.engine(w.owner(2*i, 2*i+1), func(p *syncer.Parts) { p.Source = faultstore.Wrap(p.Source, ear) }))
		}
		w.begin()
		w.eventually("ready", w.allReady)
		// The second hears everything and only learns that the history is gone when it has
		// to begin its stream again.
		w.lose(w.src, func() { w.churn(rnd, w.src, "v1", "a1", "b1"); <-time.After(2 * time.Second) }, ears[0])
		w.eventually("the loss", func() bool { return !w.allReady() })
		w.eventually("ready again", w.allReady)
		w.inSync()
		w.lose(w.src, func() { w.churn(rnd, w.src, "v1", "a1", "b1"); <-time.After(2 * time.Second) }, ears[1])
		w.eventually("the loss", func() bool { return !w.allReady() })
		w.drain()
		w.inSync()
		for _, e := range es {
			e.stop(t)
		}
	})
}

// TestKilledInTheRescan: the next owner knows that there is one to be done.
func TestKilledInTheRescan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rnd, ear := newWorld(t), rand.New(rand.NewPCG(5, 1)), deaf()
		w.churn(rnd, w.src, "v1", "a1", "b1")
		held := &comparer{}
		first := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = faultstore.Wrap(p.Source, ear)
			held.Comparer, p.Comparer = p.Comparer, held
		})
		w.begin()
		w.eventually("ready", w.allReady)
		held.held.Store(true)
		w.lose(w.src, func() { w.churn(rnd, w.src, "v1", "a1", "b1") }, ear)
		w.eventually("the rescan", func() bool { p, _ := first.progress(1); return strings.Contains(p.WaitsFor, "comparison of") })
		for n := range ring {
			c, found, err := w.store.LoadCheckpoint(t.Context(), syncer.Key(1, w.dir, 0), n)
			w.check(err)
			if !found || !c.Rescan || c.Verified || len(c.DoneBits) == 0 {
				t.Errorf("shard %d: %+v, want one that is copied and to be compared", n, c)
			}
		}
		first.stop(t)
		for n := range ring {
			w.free(n)
		}
		var loaded atomic.Int64
		second := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = counting{p.Target, &loaded} })
		w.drain()
		w.inSync()
		if n := loaded.Load(); n > 0 {
			t.Errorf("%d records were copied again", n)
		}
		second.stop(t)
	})
}

// TestLostHistoryOnTheReverseSync: its plan has no ranges, and gets some.
func TestLostHistoryOnTheReverseSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rnd := newWorld(t), rand.New(rand.NewPCG(2, 1))
		w.write(w.src, "v1", mutation("a1", "kept", 1), mutation("a1", "gone", 2))
		w.write(w.dst, "v2", mutation("a2", "kept", 1), mutation("a2", "gone", 2))
		w.flip(w.position(w.dst))
		back := w.reverseSync()
		w.write(w.dst, "v2", mutation("a2", "made", 3))
		w.eventually("the old namespace to follow", func() bool { return w.holds(w.src, "v1", "a1") == "gone=2 kept=1 made=3" })
		back.stop(t)
		w.write(w.dst, "v2", mutation("a2", "lost", 4), record.Mutation{Kind: "a2", Key: record.StringKey("gone")})
		w.churn(rnd, w.dst, "v2", "b2")
		w.dst.Cluster().LoseHistory()
		for n := range ring {
			w.free(n)
		}
		again := w.reverseSync()
		w.eventually("the rescan", func() bool { return w.holds(w.src, "v1", "a1") == "kept=1 lost=4 made=3" })
		w.eventually("its end", func() bool { p, _ := again.progress(0); return p.State == "ready" })
		w.inSync()
		again.stop(t)
	})
}

// TestLostHistoryInTheSwitch: a shard whose fence lies in what was lost does not drain, and
// is compared once the switch is over.
func TestLostHistoryInTheSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rnd, ear := newWorld(t), rand.New(rand.NewPCG(4, 1)), deaf()
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = faultstore.Wrap(p.Source, ear) })
		w.begin()
		w.eventually("ready", w.allReady)
		w.apply(upgradestate.StartSwitch{ID: "u"})
		w.lose(w.src, func() {
			w.churn(rnd, w.src, "v1", "a1", "b1") // held writes let through late
			w.apply(upgradestate.Held{ID: "u"})
			for _, k := range []string{"a1", "b1", "c1"} {
				w.apply(w.fence(k))
			}
		}, ear)
		<-time.After(time.Minute)
		if ready := w.ready(); len(ready) > 0 {
			t.Errorf("%v are drained, and nobody has seen the fence", ready)
		}
		w.apply(upgradestate.Abort{ID: "u", Reason: "deadline"})
		w.apply(upgradestate.Aborted{ID: "u"})
		w.eventually("the rescan", func() bool { p, _ := e.progress(0); return p.State == "ready" || p.State == "following" })
		w.inSync()
		e.stop(t)
	})
}

// TestLostHistoryByContent: groups that were made of several records, which moved between
// them and were deleted.
func TestLostHistoryByContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ear := crews(t, 1), deaf()
		w.hire("anna", "red", 1)
		w.hire("bert", "red", 2)
		w.hire("cleo", "blue", 4)
		w.hire("dora", "green", 8)
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = faultstore.Wrap(p.Source, ear) })
		w.begin()
		w.eventually("ready", w.allReady)
		w.lose(w.src, func() {
			w.hire("bert", "blue", 2)
			w.hire("dora", "", 0)
			w.hire("eric", "white", 16)
		}, ear)
		w.eventually("the loss", func() bool { return !w.allReady() })
		w.eventually("ready again", w.allReady)
		for name, want := range map[string]string{"red": "1/1", "blue": "2/6", "green": "", "white": "1/16"} {
			if got := w.crew(name); got != want {
				t.Errorf("crew %s is %q, want %q", name, got, want)
			}
		}
		e.stop(t)
	})
}

// gone is a source whose collections somebody has dropped and made anew.
type gone struct{ record.Namespace }

func (gone) Locate(context.Context, string) (string, error) { return "", record.ErrNotFound }

// TestAnotherSourceIsRefused: a collection that was dropped and made anew is not compared,
// which would delete everything.
func TestAnotherSourceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", "kept", 1)
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = gone{p.Source} })
		w.begin()
		w.eventually("ready", w.allReady)
		w.src.Cluster().LoseHistory()
		var refused *record.UnsupportedError
		if err := <-e.done; !errors.As(err, &refused) || !strings.Contains(err.Error(), "dropped") {
			t.Fatalf("the engine ended with %v", err)
		}
		if ready := w.ready(); len(ready) > 0 {
			t.Errorf("shards %v are reported ready", ready)
		}
		if got := w.target("a2", "kept"); got != 1 {
			t.Errorf("the target was changed: %d", got)
		}
	})
}

// TestSourceGoneBeforeAChangeIsRead: a change whose record cannot be read any more, since the
// collection is gone, does not keep the engine from finding out.
func TestSourceGoneBeforeAChangeIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", "kept", 1)
		var isGone atomic.Bool
		reads := faultstore.On(faultstore.InjectorFunc(func(faultstore.Op) faultstore.Fault {
			if isGone.Load() {
				return faultstore.Fault{Before: fmt.Errorf("read: %w: the kind has moved", record.ErrFenced)}
			}
			return faultstore.Fault{}
		}), faultstore.Read)
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = gone{faultstore.Wrap(p.Source, reads)} })
		w.begin()
		w.eventually("ready", w.allReady)
		isGone.Store(true)
		w.put("a1", "kept", 2)
		var refused *record.UnsupportedError
		if err := <-e.done; !errors.As(err, &refused) || !strings.Contains(err.Error(), "dropped") {
			t.Fatalf("the engine ended with %v", err)
		}
		if got := w.target("a2", "kept"); got != 1 {
			t.Errorf("the target was changed: %d", got)
		}
	})
}

// TestWaivedInTheRescan: a waived group that has become transformable while the history was
// lost comes over, as it would by its change.
func TestWaivedInTheRescan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ear := newWorld(t), deaf()
		w.put("a1", "poison", -1)
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = faultstore.Wrap(p.Source, ear) })
		w.begin()
		w.eventually("the poison is parked", func() bool { return len(w.parked()) == 1 })
		waived := w.parked()[0]
		waived.Waived = true
		w.check(w.store.Park(t.Context(), waived))
		w.eventually("ready", w.allReady)
		w.lose(w.src, func() { w.put("a1", "poison", 5) }, ear)
		w.eventually("the loss", func() bool { return !w.allReady() })
		w.eventually("ready again", w.allReady)
		if got := w.target("a2", "poison"); got != 5 || slices.ContainsFunc(w.parked(), func(syncer.Parked) bool { return true }) {
			t.Errorf("the target holds %d, parked %v", got, w.parked())
		}
		e.stop(t)
	})
}

// TestStaleRead: a read of the source that is older than the loss does not count.
func TestStaleRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ear := newWorld(t), deaf()
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = faultstore.Wrap(p.Source, ear) })
		w.begin()
		w.eventually("ready", w.allReady)
		w.src.Cluster().Depose()
		w.lose(w.src, func() { w.put("a1", "made", 2) }, ear)
		w.eventually("the loss", func() bool { return !w.allReady() })
		<-time.After(10 * time.Second)
		if w.allReady() {
			t.Error("ready by reads from before the loss")
		}
		w.src.Cluster().Rejoin()
		w.eventually("ready again", w.allReady)
		if got := w.holds(w.dst, "v2", "a2"); got != "made=2" {
			t.Errorf("v2 holds %q", got)
		}
		e.stop(t)
	})
}

// TestDeposedSource: a plan whose copy and comparison are answered by a server that was the
// source's primary, or the target's, takes nothing from before the plan's start.
func TestDeposedSource(t *testing.T) {
	for _, side := range []string{"source", "target"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				deposed := w.src.Cluster()
				if side == "target" {
					deposed = w.dst.Cluster()
				}
				deposed.Depose()
				for i := range 20 {
					w.put("a1", keyIn(i%ring, i/ring), i)
					w.write(w.dst, "v2", mutation("b2", keyIn(i%ring, i/ring), i)) // orphans: of nothing in the source
				}
				w.begin()
				e := w.engine(w.owner(0, 1, 2, 3), nil)
				<-time.After(10 * time.Second)
				if w.allReady() {
					t.Error("ready by reads from before the plan")
				}
				deposed.Rejoin()
				w.eventually("ready", w.allReady)
				w.inSync()
				e.stop(t)
			})
		})
	}
}

// TestLostAgainAndAgain: a loss in the middle of a rescan begins it anew, for what it had
// compared may have changed since.
func TestLostAgainAndAgain(t *testing.T) {
	for seed := range raced.Seeds(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, rnd, ear := newWorld(t), rand.New(rand.NewPCG(seed, 9)), deaf()
				rolls := faultstore.Count(faultstore.Probability(seed, 0.5, faultstore.Rolled()))
				rolling := faultstore.NewToggle(faultstore.On(rolls, faultstore.Next))
				w.churn(rnd, w.src, "v1", "a1", "b1")
				e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
					p.Source = faultstore.Wrap(slow{p.Source}, faultstore.Any(ear, rolling))
				})
				w.begin()
				w.eventually("ready", w.allReady)
				rolling.On()
				for range 4 {
					w.lose(w.src, func() { w.churn(rnd, w.src, "v1", "a1", "b1") }, ear)
					<-time.After(6 * time.Second)
				}
				rolling.Off()
				w.eventually("ready again", func() bool { p, _ := e.progress(0); return w.allReady() && p.State == "ready" })
				w.inSync()
				rolls.AssertFired(t, 3)
				e.stop(t)
			})
		})
	}
}

// slow takes its time to scan.
type slow struct{ record.Namespace }

func (s slow) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return record.Page{}, ctx.Err()
	}
	return s.Namespace.Scan(ctx, req)
}
