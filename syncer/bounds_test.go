package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// TestLateIsBounded: what waits for its second comparison is bounded by its size. While the
// comparison is stopped, changes are read up to that and then wait at the source; nothing
// is forgotten.
func TestLateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := &comparer{}
		e := w.engineWith(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { c.Comparer, p.Comparer = p.Comparer, c },
			func(cfg *syncer.Config) { cfg.LateBytes = 8 << 10 })
		w.begin()
		w.eventually("ready", w.allReady)
		c.held.Store(true)
		const records, size = 100, 90 // of a name, which counts as some 400 bytes
		keys := make([]string, records)
		for i := range keys {
			keys[i] = fmt.Sprintf("%04d%s", i, strings.Repeat("x", size))
		}
		brought := func() (n int) {
			for i, key := range keys {
				if w.target("a2", key) == i {
					n++
				}
			}
			return n
		}
		for i, key := range keys {
			w.put("a1", key, i)
			<-time.After(5 * time.Millisecond)
		}
		<-time.After(10 * time.Second)
		if n := brought(); n < 5 || n > 50 {
			t.Errorf("%d changes were read while their comparison stood still, want about 20", n)
		}
		c.held.Store(false)
		w.eventually("the last change", func() bool { return w.target("a2", keys[records-1]) == records-1 })
		w.eventually("ready again", w.allReady)
		if n := brought(); n != records {
			t.Errorf("%d of %d changes were brought", n, records)
		}
		e.stop(t)
	})
}

// gated counts how many runs of groups are between their first read and what is made of them.
type gated struct {
	record.Namespace
	now, most *atomic.Int64
}

func (g gated) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	if n := g.now.Add(1); n > g.most.Load() {
		g.most.Store(n)
	}
	defer g.now.Add(-1)
	<-time.After(20 * time.Millisecond)
	return g.Namespace.Read(ctx, req)
}

// TestRunsAreCounted: comparisons and changes, of all workers together, read as many runs
// of groups at a time as there are workers.
func TestRunsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var now, most atomic.Int64
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = gated{p.Source, &now, &most}
			p.Comparer = reading{p.Comparer, p.Source}
		})
		w.begin()
		w.eventually("ready", w.allReady)
		most.Store(0)
		for round := range 2 {
			var all []record.Mutation
			for i := range 1200 {
				all = append(all, mutation("a1", keyIn(i%ring, i/ring%50)+strings.Repeat("x", i/200), round))
			}
			w.write(w.src, "v1", all...)
			<-time.After(300 * time.Millisecond)
		}
		w.eventually("ready again", w.allReady)
		if n := most.Load(); n != 2 {
			t.Errorf("up to %d runs were read at a time by 2 workers", n)
		}
		e.stop(t)
	})
}

// reading is a comparer whose comparisons of groups show as a read.
type reading struct {
	syncer.Comparer
	source record.Namespace
}

func (r reading) Groups(ctx context.Context, src, dst transform.View, ids []transform.GroupID) ([]transform.Difference, error) {
	if _, err := r.source.Read(ctx, record.ReadRequest{Tokens: src.Tokens, NotBefore: src.NotBefore}); err != nil {
		return nil, err
	}
	return r.Comparer.Groups(ctx, src, dst, ids)
}

// huge is a namespace some of whose records are more than can be read at once.
type huge struct {
	record.Namespace
	key   record.Key
	bytes int
}

func (h huge) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := h.Namespace.Read(ctx, req)
	for _, r := range snap.Records {
		if err == nil && r.Key == h.key && req.Bytes > 0 && req.Bytes < h.bytes {
			return record.Snapshot{}, record.ErrTooLarge
		}
	}
	return snap, err
}

// TestGroupThatIsTooLarge: a group that cannot be read as one is parked with the reason, and
// does not end the engine; the others are applied, and so is it when it has become
// smaller.
func TestGroupThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		large := keyIn(1, 0)
		at := &huge{Namespace: w.src, key: record.StringKey(large), bytes: 100 << 20}
		w.begin()
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = at })
		w.eventually("ready", w.allReady)
		w.write(w.src, "v1", mutation("a1", large, 1), mutation("a1", keyIn(1, 1), 2))
		w.eventually("the reason", func() bool {
			parked := w.parked()
			return len(parked) == 1 && parked[0].Key == large && strings.Contains(parked[0].Error, transform.ErrLargeGroup.Error())
		})
		w.eventually("the other", func() bool { return w.target("a2", keyIn(1, 1)) == 2 })
		if got := w.target("a2", large); got != -1 {
			t.Errorf("the target holds %d", got)
		}
		at.bytes = 0
		w.put("a1", large, 3)
		w.eventually("the smaller one", func() bool { return w.target("a2", large) == 3 && len(w.parked()) == 0 })
		w.eventually("ready again", w.allReady)
		e.stop(t)
	})
}

// TestLongIDs: a record whose _id is longer than any key may be is parked with the reason,
// whether a copy or a change meets it; checkpoints and all other records go on, and a record
// that is deleted does not stay in the list.
func TestLongIDs(t *testing.T) {
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		physical := w.tokens("v1")["a1"].Name
		long := func(id string) bson.Raw {
			doc, err := bson.Marshal(item{ID: strings.Repeat(id, 2<<20), N: 1})
			w.check(err)
			return doc
		}
		w.check(w.src.Foreign().Put(t.Context(), physical, long("a")))
		for i := range 20 {
			w.put("a1", keyIn(i%ring, i/ring), i)
		}
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.begin()
		reasons := func(n int) func() bool {
			return func() bool {
				list := w.parked()
				for _, p := range list {
					if !strings.Contains(p.Error, record.ErrLongKey.Error()) || len(p.Key) > 1000 || len(p.Group) > 1000 {
						t.Errorf("parked as %.200q of %.200q: %s", p.Key, p.Group, p.Error)
					}
				}
				return len(list) == n
			}
		}
		w.eventually("the reason", reasons(1))
		w.check(w.src.Foreign().Put(t.Context(), physical, long("b")))
		w.put("a1", keyIn(1, 0), 100)
		w.eventually("the reason of the other", reasons(2))
		w.eventually("the change", func() bool { return w.target("a2", keyIn(1, 0)) == 100 })
		w.eventually("all records", func() bool { return w.target("a2", keyIn(3, 4)) == 19 })
		for _, id := range []string{"a", "b"} {
			w.check(w.src.Foreign().Delete(t.Context(), physical, long(id).Lookup("_id")))
		}
		w.eventually("an empty list", reasons(0))
		w.eventually("ready", w.allReady)
		e.stop(t)
	})
}

// errNoJournal is what a journal returns for a value that is too large for it.
var errNoJournal = errors.New("the value is too large")

// small is a journal that takes small values only.
type small struct {
	syncer.Journal
	refused atomic.Int64
}

func (s *small) SaveCheckpoints(ctx context.Context, dir syncer.DirectionKey, cs map[int]syncer.Checkpoint, conditions ...coord.Condition) error {
	for _, c := range cs {
		if raw, err := bson.Marshal(c); err != nil || len(raw) > 8<<10 {
			s.refused.Add(1)
			return errNoJournal
		}
	}
	return s.Journal.SaveCheckpoints(ctx, dir, cs, conditions...)
}

// unhurried is a target that takes its time, so that a copy has checkpoints.
type unhurried struct{ record.Namespace }

func (s unhurried) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	<-time.After(300 * time.Millisecond)
	return s.Namespace.Load(ctx, b)
}

// TestCheckpointsHaveShortPlaces: long names are copied, and no checkpoint holds one.
func TestCheckpointsHaveShortPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const records = 60
		key := func(i int) string { return keyIn(i%ring, i/ring) + strings.Repeat("x", 30<<10) }
		for i := range records {
			w.put("a1", key(i), i)
		}
		j := &small{Journal: w.store}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Journal, p.Target = j, unhurried{p.Target} })
		w.begin()
		w.eventually("ready", w.allReady)
		for i := range records {
			if got := w.target("a2", key(i)); got != i {
				t.Errorf("item %d is %d", i, got)
			}
		}
		if n := j.refused.Load(); n > 0 {
			t.Errorf("%d checkpoints were too large", n)
		}
		e.stop(t)
	})
}
