package syncer_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// loads notes the keys that a target is asked to load.
type loads struct {
	record.Namespace
	mu   sync.Mutex
	keys []record.Key
}

func (l *loads) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	l.mu.Lock()
	for _, g := range b.Groups {
		for _, w := range g.Writes {
			l.keys = append(l.keys, w.Key)
		}
	}
	l.mu.Unlock()
	return l.Namespace.Load(ctx, b)
}

// TestChangedBeforeItsPage: what changed before the copy came to it is in the target, and is not
// inserted with the others of its page.
func TestChangedBeforeItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := intoFixed(t), hold("load", "a")
		for _, key := range []string{"a", "b", "changed", "x"} {
			w.put("a1", key, 1)
		}
		seen := &loads{Namespace: w.dst}
		e := w.engineWith(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { h.Namespace, p.Target = seen, h }, func(c *syncer.Config) {
			c.Workers, c.Page = 1, 1
		})
		w.begin()
		<-h.entered
		w.put("a1", "changed", 2)
		<-time.After(5 * time.Second) // it is applied
		if n := w.target("a2", "changed"); n != 2 {
			t.Fatalf("the change is not applied: %d", n)
		}
		close(h.release)
		w.eventually("ready", w.allReady)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		loaded := func(key string) bool { return slices.Contains(seen.keys, record.StringKey(key)) }
		if loaded("changed") || !loaded("a") || !loaded("x") {
			t.Errorf("loaded: %v", seen.keys)
		}
		if n := w.target("a2", "changed"); n != 2 {
			t.Errorf("changed is %d", n)
		}
		e.stop(t)
	})
}

// halting is a source whose pages are noted, and a target that takes no page until it is let.
type halting struct {
	let     chan struct{}
	mu      sync.Mutex
	scanned []record.Range
	loaded  int
	copied  []record.Range // what had been scanned by the last load
}

type haltingPlace struct {
	record.Namespace
	h *halting
}

func (p haltingPlace) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	p.h.mu.Lock()
	p.h.scanned = append(p.h.scanned, req.Range)
	p.h.mu.Unlock()
	return p.Namespace.Scan(ctx, req)
}

func (p haltingPlace) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	select {
	case <-p.h.let:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.h.mu.Lock()
	p.h.loaded += len(b.Groups)
	p.h.copied = slices.Clone(p.h.scanned)
	p.h.mu.Unlock()
	return p.Namespace.Load(ctx, b)
}

// TestReadsAhead: while a page is written the next one is read, and no further one, and it is what
// is written then: no page is read twice. An engine that ends in between leaves nothing behind.
func TestReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const records = 40
		var want []string
		for i := range records {
			name := fmt.Sprintf("r%02d", i)
			w.put("a1", name, i)
			want = append(want, fmt.Sprintf("%s=%d", name, i))
		}
		h := &halting{let: make(chan struct{})}
		all := w.owner(0, 1, 2, 3)
		start := func() *running {
			return w.engineWith(all, func(p *syncer.Parts) {
				p.Source, p.Target = haltingPlace{p.Source, h}, haltingPlace{p.Target, h}
			}, func(c *syncer.Config) { c.Workers, c.Page = 1, 1 })
		}
		r := start()
		synctest.Wait()
		h.mu.Lock()
		if s := h.scanned; len(s) != 2 || !bytes.Equal(s[0].To, s[1].To) || bytes.Equal(s[0].From, s[1].From) {
			t.Errorf("pages %v are read while the first is written", s)
		}
		h.scanned = nil
		h.mu.Unlock()
		r.stop(t)
		close(h.let)
		r = start()
		w.eventually("everything is copied", func() bool { return w.holds(w.dst, "v2", "a2") == strings.Join(want, " ") })
		r.stop(t)
		h.mu.Lock()
		defer h.mu.Unlock()
		seen := map[string]bool{}
		for _, page := range h.copied {
			at := fmt.Sprintf("%x-%x", page.From, page.To)
			if seen[at] && at != "-" { // a look at whole kinds, not at ranges of them
				t.Errorf("page %s is read twice", at)
			}
			seen[at] = true
		}
		if h.loaded != records {
			t.Errorf("%d records are loaded, want %d", h.loaded, records)
		}
	})
}

// weighed counts the bytes that reads bring, and remembers the most of several records.
type weighed struct {
	record.Namespace
	most *atomic.Int64
}

func (w weighed) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := w.Namespace.Read(ctx, req)
	var bytes int64
	for _, r := range snap.Records {
		bytes += int64(len(r.Doc))
	}
	if len(snap.Records) > 1 && bytes > w.most.Load() {
		w.most.Store(bytes)
	}
	return snap, err
}

// TestLargeRecords: records of 1 to 15 MiB are copied, followed and compared, and no read
// brings more of them at once than its bound, however many change together.
func TestLargeRecords(t *testing.T) {
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		large := func(i, mib int) record.Mutation {
			key := keyIn(i%ring, i/ring)
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "n", Value: i}, {Key: "filler", Value: strings.Repeat("x", mib<<20-200)}})
			w.check(err)
			return record.Mutation{Kind: "a1", Key: record.StringKey(key), Doc: doc}
		}
		for i := range 30 {
			w.write(w.src, "v1", large(i, 1))
		}
		w.write(w.src, "v1", large(30, 15))
		var most atomic.Int64
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source, p.Target = weighed{p.Source, &most}, weighed{p.Target, &most}
			p.Comparer = verify.New(p.Source, p.Target, p.Direction)
		})
		w.begin()
		w.eventually("ready", w.allReady)
		var all []record.Mutation
		for i := range 30 { // in one transaction, and so in one batch
			all = append(all, large(i, 1))
			all[i].Doc = append(bson.Raw(nil), all[i].Doc...)
			all[i].Doc[len(all[i].Doc)-10] = 'y'
		}
		w.write(w.src, "v1", all...)
		w.eventually("the change", func() bool {
			rec, err := w.dst.Get(t.Context(), w.tokens("v2")["a2"], all[29].Key)
			return err == nil && string(rec.Doc) == string(all[29].Doc)
		})
		w.eventually("ready again", w.allReady)
		if got := most.Load(); got > transform.ReadBytes || got == 0 {
			t.Errorf("a read brought %d MiB at once", got>>20)
		}
		if _, err := w.dst.Get(t.Context(), w.tokens("v2")["a2"], record.StringKey(keyIn(30%ring, 30/ring))); err != nil {
			t.Errorf("the largest record: %v", err)
		}
		e.stop(t)
	})
}

// TestManyKindsAreDealtOut: kinds of a single range do not all fall to one shard, and all of
// them are copied.
func TestManyKindsAreDealtOut(t *testing.T) {
	t.Parallel()
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		const kinds, shardCount = 200, 16
		w, _, e := wide(t, kinds, 1, shardCount)
		w.eventually("everything is copied", func() bool { return e.synced() && len(w.ready()) == shardCount })
		most, sum := int64(0), int64(0)
		for _, p := range e.engine.Progress() {
			most, sum = max(most, p.Copied), sum+p.Copied
		}
		if sum != kinds || most > kinds/4 {
			t.Errorf("%d of %d records are copied, one shard has %d of them", sum, kinds, most)
		}
		e.stop(t)
	})
}
