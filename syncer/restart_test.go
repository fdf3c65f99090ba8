package syncer_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// comparer stands before another one: it holds comparisons of single groups while held,
// and calls onPage before pages of source kinds until that has done what it is for.
type comparer struct {
	syncer.Comparer
	held   atomic.Bool
	onPage func() (done bool)

	mu   sync.Mutex
	done bool
}

func (c *comparer) Groups(ctx context.Context, src, dst transform.View, ids []transform.GroupID) ([]transform.Difference, error) {
	for c.held.Load() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Comparer.Groups(ctx, src, dst, ids)
}

func (c *comparer) SourcePage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
	c.mu.Lock()
	if c.onPage != nil && !c.done {
		c.done = c.onPage()
	}
	c.mu.Unlock()
	return c.Comparer.SourcePage(ctx, src, dst, kind, r, limit)
}

// A fence that was met before the place of the checkpoint is known to the next
// owner, who does not meet it again.
func TestMarkersOutliveTheirOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := &comparer{}
		first := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { c.Comparer, p.Comparer = p.Comparer, c })
		w.begin()
		w.eventually("ready", w.allReady)
		w.apply(upgradestate.StartSwitch{ID: "u"})
		w.apply(upgradestate.Held{ID: "u"})
		var confirmed []upgradestate.Event
		// The kinds are fenced one after another. b1 is written in between, and that is
		// compared; the next write no longer is.
		confirmed = append(confirmed, w.fence("a1"))
		w.put("b1", keyIn(1, 0), 1)
		<-time.After(3 * time.Second)
		c.held.Store(true)
		w.put("b1", keyIn(1, 1), 2)
		<-time.After(3 * time.Second)
		first.stop(t)
		confirmed = append(confirmed, w.fence("b1"), w.fence("c1"))
		for _, ev := range confirmed {
			w.apply(ev)
		}
		o := w.owner()
		for n := range ring {
			w.free(n)
		}
		o.Take(0, 1, 2, 3)
		second := w.engine(o, nil)
		w.eventually("drain", w.allReady)
		second.stop(t)
	})
}

// While a late change was not compared again, the shard is not drained; what differs then is
// repaired at once, for writes are held.
func TestDrainComparesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := keyIn(1, 0)
		c := &comparer{}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { c.Comparer, p.Comparer = p.Comparer, c })
		w.begin()
		w.eventually("ready", w.allReady)
		c.held.Store(true)
		w.put("a1", key, 7)
		w.eventually("the change", func() bool { return w.target("a2", key) == 7 })
		w.check(w.dst.Write(t.Context(), w.tokens("v2"), []record.Mutation{mutation("a2", key, 1000)}))
		w.apply(upgradestate.StartSwitch{ID: "u"})
		w.apply(upgradestate.Held{ID: "u"})
		for _, k := range []string{"a1", "b1", "c1"} {
			w.apply(w.fence(k))
		}
		<-time.After(2 * time.Second)
		if ready := w.ready(); slices.Contains(ready, 1) {
			t.Errorf("%v are drained, shard 1 was not compared again", ready)
		}
		c.held.Store(false)
		start := time.Now()
		w.eventually("drain", w.allReady)
		if got := w.target("a2", key); got != 7 {
			t.Errorf("drained with %d in the target, want 7", got)
		}
		if took := time.Since(start); took > 600*time.Millisecond {
			t.Errorf("the repair took %s", took)
		}
		e.stop(t)
	})
}

// What the comparison of the whole found, and nobody has resolved, is not forgotten with
// the process that found it.
func TestDifferenceOutlivesItsFinder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := keyIn(1, 0)
		w.put("a1", key, 7)
		c := &comparer{onPage: func() bool {
			if w.target("a2", key) != 7 {
				return false // a page of another shard: the copy would write it anew
			}
			// Somebody else writes the target.
			w.check(w.dst.Write(t.Context(), w.tokens("v2"), []record.Mutation{mutation("a2", key, 1000)}))
			return true
		}}
		w.begin()
		first := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			c.Comparer, p.Comparer = p.Comparer, c
			// Nobody looks at the changes of the target: the comparison alone finds it.
			p.Target = faultstore.Wrap(p.Target, faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Follow))
		})
		w.eventually("the difference", func() bool { return w.target("a2", key) == 1000 })
		<-time.After(700 * time.Millisecond) // found, perhaps stored, not yet repaired
		first.stop(t)
		if got := w.target("a2", key); got != 1000 {
			t.Fatalf("the target holds %d already: the test is too slow", got)
		}
		for n := range ring {
			w.free(n)
		}
		second := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("ready", w.allReady)
		if got := w.target("a2", key); got != 7 {
			t.Errorf("ready with %d in the target, want 7", got)
		}
		for _, p := range second.engine.Progress() {
			if p.Mismatched != 0 { // it differed, and no longer does
				t.Errorf("shard %d still shows %d different groups", p.Shard, p.Mismatched)
			}
			if p.LagMillis == nil {
				t.Errorf("shard %d is ready and does not know its lag", p.Shard)
			}
		}
		second.stop(t)
	})
}

// Checkpoints and progress do not wait for a comparison.
func TestCheckpointsDoNotWaitForComparisons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 40 {
			w.put("a1", keyIn(i%ring, i/ring), i)
		}
		c := &comparer{}
		c.held.Store(true)
		var loaded atomic.Int64
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			c.Comparer, p.Comparer = p.Comparer, c
			p.Target = counting{p.Target, &loaded}
		})
		w.eventually("the first page", func() bool { return loaded.Load() > 0 })
		w.put("a1", keyIn(0, 100), 1) // is compared, which takes for ever
		start := time.Now()
		for shard := range ring {
			w.eventually("a checkpoint of the copy", func() bool {
				cp, _, err := w.store.LoadCheckpoint(t.Context(), syncer.Key(1, w.dir, 0), shard)
				w.check(err)
				return len(cp.DoneBits) > 0
			})
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("checkpoints came after %s, no more than 10 s of work may be lost", took)
		}
		e.stop(t)
	})
}

// The copy does not begin again, whenever its process is replaced.
func TestCopyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const items = 200
		for i := range items {
			w.put("a1", keyIn(i%ring, i/ring), i)
		}
		var loaded atomic.Int64
		var e *running
		for round := 0; ; round++ {
			e = w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = counting{p.Target, &loaded} })
			if round == 5 {
				break
			}
			before := loaded.Load()
			w.eventually("some pages", func() bool { return loaded.Load() >= before+20 || e.synced() })
			e.stop(t)
			for n := range ring {
				w.free(n)
			}
		}
		w.eventually("the copy", e.synced)
		for i := range items {
			if got := w.target("a2", keyIn(i%ring, i/ring)); got != i {
				t.Fatalf("item %d is %d", i, got)
			}
		}
		// Each stop may lose the pages that were under way.
		if n := loaded.Load(); n > items+5*2*5*2 {
			t.Errorf("%d records were loaded to copy %d", n, items)
		}
		e.stop(t)
	})
}

type counting struct {
	record.Namespace
	n *atomic.Int64
}

func (c counting) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	c.n.Add(int64(len(b.Groups)))
	// Time for a test to look.
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return c.Namespace.Load(ctx, b)
}
