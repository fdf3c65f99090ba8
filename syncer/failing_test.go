package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// flaps counts how often something was parked, and how often a report was taken back.
type flaps struct{ parked, withdrawn atomic.Int64 }

func (f *flaps) watch(p *syncer.Parts) {
	p.Journal = countParks{p.Journal, &f.parked}
	p.Deployments = countWithdrawals{p.Deployments, &f.withdrawn}
}

type countWithdrawals struct {
	syncer.Deployments
	n *atomic.Int64
}

func (c countWithdrawals) Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error) {
	if _, is := ev.(upgradestate.Withdraw); is {
		c.n.Add(1)
	}
	return c.Deployments.Apply(ctx, ev, conditions...)
}

func (f *flaps) none(t *testing.T) {
	t.Helper()
	if p, w := f.parked.Load(), f.withdrawn.Load(); p != 0 || w != 0 {
		t.Errorf("%d times something was parked, and %d reports were taken back", p, w)
	}
}

// pair are two hands of one crew, in shards of two owners.
func (w *world) pair(i int, crew string) (hand, hand) {
	return hand{w.handIn(i%2, i/2), crew, 1}, hand{w.handIn(2+i%2, i/2), crew, 2}
}

// TestTornTransactions: clients write all members of a group in one transaction, and move
// all of them to another, and the changes come one by one. A group is never complete in
// what one batch reports, and nothing of that is shown.
func TestTornTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crewsOn(t, 2, memstore.Options{Changes: 1, Torn: true})
		var seen flaps
		a, b := w.engine(w.owner(0, 1), seen.watch), w.engine(w.owner(2, 3), seen.watch)
		w.begin()
		w.eventually("ready", w.allReady)
		const crews = 30
		for round := range 2 {
			for i := range crews {
				w.hireAll(slicesOf(w.pair(i, fmt.Sprint("crew", i, "-", round)))...)
				<-time.After(time.Duration(i) * 3 * time.Millisecond)
			}
		}
		for i := range crews {
			w.eventually("the last of the crews", func() bool { return w.crew(fmt.Sprint("crew", i, "-1")) == "2/3" })
			if got := w.crew(fmt.Sprint("crew", i, "-0")); got != "" {
				t.Errorf("crew %d is still %q", i, got)
			}
		}
		seen.none(t)
		if !w.allReady() {
			t.Errorf("only %v are ready", w.ready())
		}
		a.stop(t)
		b.stop(t)
	})
}

func slicesOf(a, b hand) []hand { return []hand{a, b} }

// TestTornByAnAbsentController: the other members of groups are in the shards of a
// controller that does not apply anything for seconds, as after an outage.
func TestTornByAnAbsentController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 2)
		var seen flaps
		hold := make(chan struct{})
		away := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Fault{Pause: hold}), faultstore.Next))
		a := w.engine(w.owner(0, 1), seen.watch)
		b := w.engine(w.owner(2, 3), func(p *syncer.Parts) {
			seen.watch(p)
			p.Source = faultstore.Wrap(p.Source, away)
		})
		w.eventually("the copy", func() bool { return a.synced() && b.synced() })
		<-time.After(2 * time.Second)
		away.On()
		<-time.After(2 * time.Second) // it waits for changes that do not come to it
		for i := range 10 {
			w.hireAll(slicesOf(w.pair(i, fmt.Sprint("crew", i)))...)
		}
		<-time.After(7 * time.Second)
		if got := w.crew("crew0"); got != "" {
			t.Errorf("crew 0 is %q: nobody was away", got)
		}
		p, _ := a.progress(0)
		if want := "5 groups that cannot be migrated yet"; p.WaitsFor != want {
			t.Errorf("shard 0 waits for %q, want %q", p.WaitsFor, want)
		}
		away.Off()
		close(hold)
		for i := range 10 {
			w.eventually("the crews", func() bool { return w.crew(fmt.Sprint("crew", i)) == "2/3" })
		}
		w.begin()
		w.eventually("ready", w.allReady)
		seen.none(t)
		a.stop(t)
		b.stop(t)
	})
}

// TestFailingUnitIsNotReady: a unit that fails is not parked at once, and its shard does not
// become ready before it is; then it is, although it changes all the time.
func TestFailingUnitIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		bad := w.handIn(1, 0)
		w.hire(bad, "red", 1)
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("the copy", e.synced)
		<-time.After(3 * time.Second)
		failed := time.Now()
		for n := range 400 {
			w.hire(bad, "red", -1-n)
			if n == 0 {
				w.begin()
			}
			<-time.After(10 * time.Millisecond)
			if slices.Contains(w.ready(), 1) {
				t.Fatalf("ready after %s, with something that cannot be migrated", time.Since(failed))
			}
			if n == 100 && len(w.parked()) != 0 {
				t.Error("parked at once")
			}
		}
		if len(w.parked()) != 1 {
			t.Errorf("%d groups are parked after %s", len(w.parked()), time.Since(failed))
		}
		w.hire(bad, "red", 5)
		w.eventually("ready", w.allReady)
		if got := w.crew("red"); got != "1/5" {
			t.Errorf("red is %q", got)
		}
		e.stop(t)
	})
}

// TestFailingUnitOutlivesItsFinder: no checkpoint moves past a unit that fails and is not
// parked yet, though others of its shard are applied and compared; who takes the shard over
// meets it again.
func TestFailingUnitOutlivesItsFinder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		w.hire(w.handIn(1, 0), "blue", 1)
		first := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("the copy", first.synced)
		<-time.After(3 * time.Second)
		w.hire(w.handIn(1, 1), "red", -1)
		for n := range 15 {
			w.hire(w.handIn(1, 0), "blue", 2+n)
			<-time.After(100 * time.Millisecond)
		}
		first.stop(t)
		if n := len(w.parked()); n != 0 {
			t.Fatalf("%d groups are parked already: the test is too slow", n)
		}
		w.freeAll()
		w.begin()
		second := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("it is parked", func() bool {
			if slices.Contains(w.ready(), 1) {
				t.Fatal("ready without it")
			}
			return len(w.parked()) == 1
		})
		second.stop(t)
	})
}

// TestFailingUnitOfABusyGroup: a unit that the comparison after the copy finds to fail is
// parked for itself, though another one that fails with it changes between any two looks, and
// leaves it alone in the end.
func TestFailingUnitOfABusyGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 3)
		w.hire("busy", "red", 0)
		w.hire(w.handIn(1, 0), "red", 1)
		for _, id := range []string{"one", "two", "three"} {
			w.hire(id, "blue", 1)
		}
		w.begin()
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		for n := range 1000 {
			w.hire("busy", "red", n)
			<-time.After(10 * time.Millisecond)
		}
		if n := len(w.parked()); n != 2 {
			t.Errorf("%d groups are parked, want both hands of the red crew", n)
		}
		w.hire("busy", "blue", 1)
		w.eventually("it moves", func() bool { return w.crew("blue") == "4/4" })
		<-time.After(10 * time.Second)
		if n := len(w.parked()); n != 1 || slices.Contains(w.ready(), 1) {
			t.Errorf("%d groups are parked and %v are ready, with something that cannot be migrated", n, w.ready())
		}
		e.stop(t)
	})
}

// TestMoreFailThanWait: of very many units that fail, those that no longer fit among those
// that wait are parked as they are met; none is lost sight of.
func TestMoreFailThanWait(t *testing.T) {
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("the copy", e.synced)
		<-time.After(3 * time.Second)
		const all, waiting = 2100, 2000
		hands := make([]hand, all)
		for i := range hands {
			hands[i] = hand{fmt.Sprint("hand", i), fmt.Sprint("crew", i), -1}
		}
		w.hireAll(hands...)
		w.eventually("some are parked", func() bool { return len(w.parked()) > 0 })
		if n := len(w.parked()); n > all-waiting {
			t.Errorf("%d are parked at once", n)
		}
		w.eventually("all are parked", func() bool { return len(w.parked()) == all })
		e.stop(t)
	})
}

// TestBusyGroup: a group whose members change all the time, faster than they are applied,
// differs whenever it is compared. That is no mismatch, nothing is applied anew or parked
// for it, the shards become ready, and checkpoints move on.
func TestBusyGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		const size = 8
		ids := make([]string, size)
		for i := range ids {
			ids[i] = w.handIn(i%ring, i/ring)
			w.hire(ids[i], "red", 0)
		}
		slow := faultstore.On(faultstore.Always(faultstore.Fault{Latency: 60 * time.Millisecond}), faultstore.Apply, faultstore.Read)
		var seen flaps
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			seen.watch(p)
			p.Target = faultstore.Wrap(p.Target, slow)
		})
		w.eventually("the copy", e.synced)
		toks := w.tokens("v1")
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		for i, id := range ids {
			writers.Go(func() {
				for n := 1; ctx.Err() == nil; n++ {
					doc, err := bson.Marshal(hand{id, "red", n})
					w.check(err)
					w.check(w.src.Write(t.Context(), toks, []record.Mutation{{Kind: "hands1", Key: record.StringKey(id), Doc: doc}}))
					// Each changes seldom enough for what it has changed to be compared
					// often.
					<-time.After(time.Duration(4000+37*i) * time.Millisecond / 4 * time.Duration(1+i%4))
				}
			})
		}
		writers.Go(func() { // one that changes with every look
			for n := 1; ctx.Err() == nil; n++ {
				doc, err := bson.Marshal(hand{"busy", "red", n})
				w.check(err)
				w.check(w.src.Write(t.Context(), toks, []record.Mutation{{Kind: "hands1", Key: record.StringKey("busy"), Doc: doc}}))
				<-time.After(7 * time.Millisecond)
			}
		})
		<-time.After(10 * time.Second)
		before, _, err := w.store.LoadCheckpoint(t.Context(), syncer.Key(1, w.dir, 0), 0)
		w.check(err)
		w.begin()
		w.eventually("ready", w.allReady)
		<-time.After(30 * time.Second)
		after, _, err := w.store.LoadCheckpoint(t.Context(), syncer.Key(1, w.dir, 0), 0)
		w.check(err)
		if after.Position.Compare(before.Position) <= 0 {
			t.Error("the checkpoint has not moved")
		}
		for n := range ring {
			if p, _ := e.progress(n); p.Mismatched != 0 {
				t.Errorf("shard %d: %d mismatches", n, p.Mismatched)
			}
		}
		seen.none(t)
		cancel()
		writers.Wait()
		e.stop(t)
	})
}

// TestGroupThatWasLeft is compared late as well: its last writing is that of a record which
// is no longer part of it.
func TestGroupThatWasLeft(t *testing.T) {
	for _, to := range []string{"blue", ""} {
		t.Run("to "+to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := crews(t, 0)
				for i, id := range []string{"mover", "stayer", "other"} {
					w.hire(id, "red", 1+i)
				}
				var spoil atomic.Bool
				e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = spoiler{p.Target, w, &spoil} })
				w.eventually("the copy", func() bool { return e.synced() && w.crew("red") == "3/6" })
				<-time.After(5 * time.Second)
				spoil.Store(true)
				w.hire("mover", to, 1)
				w.eventually("the damage", func() bool { return !spoil.Load() })
				w.eventually("the repair", func() bool { return w.crew("red") == "2/5" })
				e.stop(t)
			})
		})
	}
}

// spoiler damages the red crew once, right after it was written.
type spoiler struct {
	record.Namespace
	w     *world
	spoil *atomic.Bool
}

func (s spoiler) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	res, err := s.Namespace.Apply(ctx, b)
	if err == nil && s.spoil.CompareAndSwap(true, false) {
		doc, err := bson.Marshal(crew{"red", 99, 99})
		s.w.check(err)
		s.w.check(s.w.dst.Write(ctx, b.Tokens, []record.Mutation{{Kind: "crews2", Key: record.StringKey("red"), Doc: doc}}))
	}
	return res, err
}
