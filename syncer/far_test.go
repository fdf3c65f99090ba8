package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// page is a load of a distant target.
type page struct {
	keys       []record.Key
	begun, end time.Time
}

// distant is a target that answers late. The load of the page with the key held waits until let is
// closed.
type distant struct {
	record.Namespace
	far     time.Duration
	held    record.Key
	entered func() // the held page has come; may be nil
	let     chan struct{}

	mu        sync.Mutex
	now, most int
	pages     []page
	scans     int // at the same time
	mostScans int
}

func (d *distant) Position(ctx context.Context) (record.Position, error) {
	d.travel()
	return d.Namespace.Position(ctx)
}

// travel takes as long as an answer over the distance.
func (d *distant) travel() {
	d.mu.Lock()
	far := d.far
	d.mu.Unlock()
	time.Sleep(far) // of the bubble
}

// move changes the distance, and forgets how many scans there were.
func (d *distant) move(far time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.far, d.mostScans = far, 0
}

func (d *distant) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	d.mu.Lock()
	d.scans++
	d.mostScans = max(d.mostScans, d.scans)
	d.mu.Unlock()
	d.travel()
	d.mu.Lock()
	d.scans--
	d.mu.Unlock()
	return d.Namespace.Scan(ctx, req)
}

func (d *distant) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	p := page{begun: time.Now()}
	for _, g := range b.Groups {
		for _, w := range g.Writes {
			p.keys = append(p.keys, w.Key)
		}
	}
	d.mu.Lock()
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.now--
		p.end = time.Now()
		d.pages = append(d.pages, p)
	}()
	if d.held != "" && slices.Contains(p.keys, d.held) {
		if d.entered != nil {
			d.entered()
		}
		select {
		case <-d.let:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.travel()
	return d.Namespace.Load(ctx, b)
}

// loaded reports whether a page with the key was loaded.
func (d *distant) loaded(key record.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.pages, func(p page) bool { return slices.Contains(p.keys, key) })
}

const farRecords = 320

func farKey(i int) string { return fmt.Sprintf("r%03d", i) }

// fillRanges gives a world so many records that kind a1 is cut into 16 ranges of 20.
func (w *world) fillRanges() *world {
	w.t.Helper()
	for i := range farRecords {
		w.put("a1", farKey(i), i)
	}
	return w
}

// all reports whether the target has all records but those of which except is true.
func (w *world) all(except func(i int) bool) bool {
	for i := range farRecords {
		if except != nil && except(i) {
			continue
		}
		if w.target("a2", farKey(i)) != i {
			return false
		}
	}
	return true
}

// TestCopyOverADistance: more pages are under way the farther the target is, up to a bound, but never
// two of the same range. They come in the order of the range.
func TestCopyOverADistance(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		far         time.Duration
		least, most int
	}{
		"near":     {0, 1, 2},
		"almost":   {20 * time.Millisecond, 2, 2},
		"far":      {100 * time.Millisecond, 3, 2 + 4},
		"very far": {time.Second, 3, 2 + 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t).fillRanges()
				d := &distant{Namespace: w.dst, far: tc.far}
				e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = d })
				w.begin()
				w.eventually("ready", w.allReady)
				e.stop(t)
				if d.most < tc.least || d.most > tc.most {
					t.Errorf("%d pages were under way, want %d to %d", d.most, tc.least, tc.most)
				}
				if !w.all(nil) {
					t.Error("the target lacks records")
				}
				plan, _, err := w.store.LoadPlan(t.Context(), syncer.Key(1, w.dir, 0))
				w.check(err)
				for _, r := range plan.Ranges["a1"] {
					var last page
					for _, p := range d.pages {
						if at := record.Cursor(p.keys[0]); at.Compare(r.From) < 0 || len(r.To) > 0 && at.Compare(r.To) >= 0 {
							continue
						}
						if p.begun.Before(last.end) || last.keys != nil && record.Cursor(p.keys[0]).Compare(record.Cursor(last.keys[0])) <= 0 {
							t.Errorf("page %v came before the end of page %v", p.keys, last.keys)
						}
						last = p
					}
				}
			})
		})
	}
}

// TestDistanceIsMeasuredAnew when bulk work begins again. A failover may have moved a primary.
func TestDistanceIsMeasuredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ear := newWorld(t).fillRanges(), deaf()
		d := &distant{Namespace: w.dst}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source, p.Target, p.Comparer = faultstore.Wrap(p.Source, ear), d, verify.New(w.src, d, w.dir)
		})
		w.begin()
		w.eventually("ready", w.allReady)
		again := func(far time.Duration, least, most int) {
			t.Helper()
			d.move(far)
			w.lose(w.src, func() { w.put("a1", farKey(0), int(far)) }, ear)
			w.eventually("the loss", func() bool { return len(w.ready()) == 0 })
			w.eventually("ready again", w.allReady)
			d.mu.Lock()
			defer d.mu.Unlock()
			if n := d.mostScans; n < least || n > most {
				t.Errorf("at %v %d pages were compared at the same time, want %d to %d", far, n, least, most)
			}
		}
		again(0, 1, 2)
		again(100*time.Millisecond, 3, 2+4)
		again(0, 1, 2)
		e.stop(t)
	})
}

// TestCheckpointOverADistance: no checkpoint passes a page that is not acknowledged, while the pages of
// other workers are. The next engine loads it.
func TestCheckpointOverADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t).fillRanges()
		held := record.StringKey(farKey(21)) // of the first page of its range
		d := &distant{Namespace: w.dst, far: 100 * time.Millisecond, held: held, let: make(chan struct{})}
		o := w.owner(0, 1, 2, 3)
		e := w.engine(o, func(p *syncer.Parts) { p.Target = d })
		w.eventually("the other ranges", func() bool { return w.all(func(i int) bool { return i >= 20 && i < 40 }) })
		<-time.After(10 * time.Second) // of the bubble: checkpoints are stored
		e.stop(t)
		d.mu.Lock()
		d.held, d.pages = "", nil
		d.mu.Unlock()
		e = w.engine(o, func(p *syncer.Parts) { p.Target = d })
		w.eventually("the last range", func() bool { return w.all(nil) })
		e.stop(t)
		if other := record.StringKey(farKey(50)); !d.loaded(held) || d.loaded(other) {
			t.Errorf("the next engine has loaded the page: %t, and another one: %t", d.loaded(held), d.loaded(other))
		}
	})
}

// TestLatePageOverADistance: a page that comes late does not overwrite what the stream has written since
// it was read, and what it brings back is gone when the shards are ready.
func TestLatePageOverADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := intoFixed(t).fillRanges() // whose pages bring deleted records back
		entered := make(chan struct{})
		d := &distant{
			Namespace: w.dst, far: 100 * time.Millisecond, held: record.StringKey(farKey(21)), let: make(chan struct{}),
			entered: sync.OnceFunc(func() { close(entered) }),
		}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = d })
		w.begin()
		<-entered
		w.put("a1", farKey(21), 1000)
		w.check(w.src.Write(t.Context(), w.tokens("v1"), []record.Mutation{{Kind: "a1", Key: record.StringKey(farKey(22))}}))
		changed := func(i int) bool { return i >= 20 && i < 40 }
		w.eventually("the change and the other ranges", func() bool { return w.target("a2", farKey(21)) == 1000 && w.all(changed) })
		close(d.let)
		w.eventually("the late page", func() bool { return w.target("a2", farKey(23)) == 23 })
		if n := w.target("a2", farKey(21)); n != 1000 {
			t.Errorf("the late page has overwritten a change: %d", n)
		}
		w.eventually("ready", w.allReady)
		if n := w.target("a2", farKey(22)); n != -1 {
			t.Errorf("a deleted record is back: %d", n)
		}
		if !w.all(func(i int) bool { return i == 21 || i == 22 }) {
			t.Error("the target lacks records")
		}
		e.stop(t)
	})
}

// farther is a farTarget whose distance shows in its positions, too.
type farther struct{ *farTarget }

func (f farther) Position(ctx context.Context) (record.Position, error) {
	time.Sleep(f.far) // of the bubble
	return f.farTarget.Position(ctx)
}

// TestMoreBatchesOverADistance: the farther the target is, the more batches of changes are under way, up
// to a bound. They still arrive in order.
func TestMoreBatchesOverADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := farther{&farTarget{Namespace: w.dst, far: time.Second, groups: map[record.Key]int{}}}
		c := &comparer{} // its repairs are writes of their own
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target, c.Comparer, p.Comparer = f, p.Comparer, c })
		w.begin()
		w.eventually("ready", w.allReady)
		c.held.Store(true)
		const changes = 60
		for i := range changes {
			w.put("a1", farKey(i), i)
			time.Sleep(60 * time.Millisecond)
		}
		w.eventually("the last change", func() bool { return w.target("a2", farKey(changes-1)) == changes-1 })
		e.stop(t)
		if f.most <= 8 || f.most > 12 {
			t.Errorf("%d batches were under way, want 9 to 12", f.most)
		}
		for i := range changes {
			if n := w.target("a2", farKey(i)); n != i {
				t.Errorf("record %d is %d", i, n)
			}
		}
	})
}
