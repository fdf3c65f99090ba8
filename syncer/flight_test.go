package syncer_test

import (
	"context"
	"fmt"
	"slices"
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
		if f.most > 4 {
			t.Errorf("%d batches were under way, want at most 4", f.most)
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
