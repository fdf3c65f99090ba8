package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// farTarget is a target to which each write takes its time. It refuses a batch with the key broken.
type farTarget struct {
	record.Namespace
	far time.Duration

	mu        sync.Mutex
	now, most int
	groups    map[record.Key]int // that are being written
	twice     bool               // a group was written by two batches at the same time
	broken    record.Key
	done      func() // called after each write with mu held; may be nil
}

func (f *farTarget) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	f.mu.Lock()
	f.now++
	f.most = max(f.most, f.now)
	var keys []record.Key
	for _, g := range b.Groups {
		for _, w := range g.Writes {
			keys = append(keys, w.Key)
			f.groups[w.Key]++
			f.twice = f.twice || f.groups[w.Key] > 1
		}
	}
	refused := f.broken != "" && slices.Contains(keys, f.broken)
	f.mu.Unlock()
	time.Sleep(f.far) // of the bubble
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now--
		for _, k := range keys {
			f.groups[k]--
		}
		if f.done != nil {
			f.done()
		}
	}()
	if refused {
		time.Sleep(f.far) // the batches behind it are done, and wait for it
		return nil, fmt.Errorf("planted: %w", record.ErrBroken)
	}
	return f.Namespace.Apply(ctx, b)
}

// TestBatchesOverADistance: the batches of changes for a far target do not wait for each other, except
// for those of the same group. A batch that fails holds back the place of the ones after it.
func TestBatchesOverADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := &farTarget{Namespace: w.dst, far: 300 * time.Millisecond, groups: map[record.Key]int{}}
		o := w.owner(0, 1, 2, 3)
		c := &comparer{} // its repairs are writes of their own
		far := func(p *syncer.Parts) { p.Target, c.Comparer, p.Comparer = f, p.Comparer, c }
		e := w.engineWith(o, far, func(c *syncer.Config) { c.Workers = 8 })
		w.begin()
		w.eventually("ready", w.allReady)
		c.held.Store(true)
		const records, writes = 7, 100
		for i := range writes {
			w.put("a1", fmt.Sprint(i%records), i)
			time.Sleep(20 * time.Millisecond)
		}
		latest := func() bool {
			for i := writes - records; i < writes; i++ {
				if w.target("a2", fmt.Sprint(i%records)) != i {
					return false
				}
			}
			return true
		}
		w.eventually("the last changes", latest)
		f.mu.Lock()
		if f.most < 3 {
			t.Errorf("at most %d batches were under way, want some", f.most)
		}
		if f.twice {
			t.Error("two batches wrote the same group at the same time")
		}
		if f.most > 24 {
			t.Errorf("%d writes were under way, want at most 24: two of each of twelve batches", f.most)
		}
		broken := keyIn(0, 0)
		f.broken = record.StringKey(broken)
		f.mu.Unlock()
		// A shard without changes to compare follows each batch with its checkpoint.
		c.held.Store(false)
		<-time.After(5 * time.Second) // of the bubble
		w.put("a1", broken, 1)
		behind, err := w.src.Position(t.Context())
		w.check(err)
		for i := range 10 {
			time.Sleep(20 * time.Millisecond)
			w.put("a1", keyIn(1+i%(ring-1), i), writes)
		}
		if err := <-e.done; err == nil {
			t.Fatal("the engine has not ended")
		}
		stored, _, err := w.store.LoadCheckpoint(t.Context(), syncer.Key(1, w.dir, 0), 0)
		w.check(err)
		if stored.Position.Compare(behind) >= 0 {
			t.Error("the checkpoint is behind the batch that failed")
		}
		f.mu.Lock()
		f.broken = ""
		f.mu.Unlock()
		again := w.engineWith(o, far, nil)
		w.eventually("the batch that had failed", func() bool { return w.target("a2", broken) == 1 })
		again.stop(t)
	})
}

// TestBusyGroupOverADistance: one write of a busy group is under way, and one waits for it, which has all
// changes that have come meanwhile. So the group is never further behind than two writes, and the wait
// counts as lag.
func TestBusyGroupOverADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const far, every = 300 * time.Millisecond, 20 * time.Millisecond
		f := &farTarget{Namespace: w.dst, far: far, groups: map[record.Key]int{}}
		c := &comparer{} // its repairs are writes of their own
		e := w.engineWith(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Target, c.Comparer, p.Comparer = f, p.Comparer, c
		}, func(c *syncer.Config) { c.LagBound = 400 * time.Millisecond })
		w.begin()
		w.eventually("ready", w.allReady)
		c.held.Store(true)
		busy, behind, late, polls := keyIn(0, 0), time.Duration(0), 0, 0
		for i := range 200 {
			w.put("a1", busy, i)
			<-time.After(every) // of the bubble
			if i > 0 && w.target("a2", busy) >= 0 {
				if p, _ := e.progress(0); strings.Contains(p.WaitsFor, "the latest took") {
					late++
				}
				polls++
				behind = max(behind, time.Duration(i-w.target("a2", busy))*every)
			}
		}
		w.eventually("the last change", func() bool { return w.target("a2", busy) == 199 })
		const patience = 50 * time.Millisecond // how long the next batch waits for the one before
		if most := 2*far + patience + 2*every; behind > most {
			t.Errorf("the group was %s behind, want at most %s: two writes", behind, most)
		}
		// Not of the first batch, which waits for nothing.
		if late < polls*9/10 {
			t.Errorf("the wait for a write counted as lag in %d of %d polls", late, polls)
		}
		f.mu.Lock()
		if f.twice {
			t.Error("two batches wrote the group at the same time")
		}
		f.mu.Unlock()
		e.stop(t)
	})
}

// TestRandomChangesOverADistance: batches that share a group with the one before are written together
// with it all the same. Only that group waits. More small writes are under way than there are workers.
func TestRandomChangesOverADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const far, every = 300 * time.Millisecond, 5 * time.Millisecond
		f := &farTarget{Namespace: w.dst, far: far, groups: map[record.Key]int{}}
		c := &comparer{} // its repairs are writes of their own; while it is held it has the memory of a worker
		e := w.engineWith(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Target, c.Comparer, p.Comparer = f, p.Comparer, c
		}, func(c *syncer.Config) { c.Workers = 3 })
		w.begin()
		w.eventually("ready", w.allReady)
		c.held.Store(true)
		type change struct {
			key string
			n   int
			at  time.Time
		}
		var missing []change
		var longest, longestOfHot time.Duration
		// About every second batch has a change of the record hot.
		for i := range 400 {
			key := fmt.Sprint("cold", i)
			if i%20 == 0 {
				key = "hot"
			}
			w.put("a1", key, i)
			missing = append(missing, change{key, i, time.Now()})
			<-time.After(every) // of the bubble
			missing = slices.DeleteFunc(missing, func(c change) bool {
				if w.target("a2", c.key) < c.n {
					return false
				}
				if c.key == "hot" {
					longestOfHot = max(longestOfHot, time.Since(c.at))
				} else {
					longest = max(longest, time.Since(c.at))
				}
				return true
			})
		}
		const patience = 50 * time.Millisecond // how long the next batch waits for the one before
		if most := far + patience + 2*every; longest > most {
			t.Errorf("a change took %s, want at most %s", longest, most)
		}
		if most := 2*far + patience + 2*every; longestOfHot > most {
			t.Errorf("a change of the record in many batches took %s, want at most %s", longestOfHot, most)
		}
		f.mu.Lock()
		if f.twice {
			t.Error("two batches wrote the same group at the same time")
		}
		f.mu.Unlock()
		e.stop(t)
	})
}
