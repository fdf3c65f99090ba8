package syncer_test

import (
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
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// parkings is a Journal that remembers the keys of all that was ever parked.
type parkings struct {
	syncer.Journal
	mu   sync.Mutex
	keys map[string]string
}

func (p *parkings) Park(ctx context.Context, what syncer.Parked, right ...coord.Condition) error {
	p.mu.Lock()
	p.keys[what.Key] = what.Error
	p.mu.Unlock()
	return p.Journal.Park(ctx, what, right...)
}

func (p *parkings) want(t *testing.T, keys ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if _, there := p.keys[key]; !there {
			t.Errorf("%s was never parked", key)
		}
	}
	if len(p.keys) != len(keys) {
		t.Errorf("parked were %v, want %v", p.keys, keys)
	}
}

// uniqueN builds a unique index on n in the target's a2.
func (w *world) uniqueN() {
	w.t.Helper()
	spec, err := bson.Marshal(bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "name", Value: "n_1"}, {Key: "unique", Value: true}})
	w.check(err)
	w.check(w.dst.BuildIndexes(w.t.Context(), w.tokens("v2")["a2"], record.KindSpec{Name: "a2", Shape: record.Shape{Indexes: []bson.Raw{spec}}}))
}

// sized is a record of about so many bytes.
func (w *world) sized(key string, n, bytes int) record.Mutation {
	w.t.Helper()
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "n", Value: n}, {Key: "filler", Value: strings.Repeat("x", bytes)}})
	w.check(err)
	return record.Mutation{Kind: "a1", Key: record.StringKey(key), Doc: doc}
}

// TestLargeRecordsExchangeUniqueValues: records that exchange unique values in one transaction
// come over, however large they are and whichever controller has them, and nothing is ever
// parked for it: two of 9 MB, a ring of five of 4 MB, and the small ones next to them.
func TestLargeRecordsExchangeUniqueValues(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		rings := [][]string{{}, {}}
		sizes := []int{9 << 20, 4 << 20}
		for i := range 2 {
			rings[0] = append(rings[0], keyIn(2*i, 0))
		}
		for i := range 5 {
			rings[1] = append(rings[1], keyIn(i%ring, 1+i/ring))
		}
		const others = 150
		for i := range others {
			rings, sizes = append(rings, []string{keyIn(0, 10+i), keyIn(3, 10+i)}), append(sizes, 10)
		}
		// state has each record of a ring hold the number of the one so many behind it.
		state := func(by int) (out []record.Mutation) {
			for r, keys := range rings {
				for i, key := range keys {
					out = append(out, w.sized(key, 100*r+(i+by)%len(keys), sizes[r]))
				}
			}
			return out
		}
		w.write(w.src, "v1", state(0)...)
		journal := &parkings{Journal: w.store, keys: map[string]string{}}
		counted := func(p *syncer.Parts) { p.Journal = journal }
		a, b := w.engine(w.owner(0, 1), counted), w.engine(w.owner(2, 3), counted)
		w.begin()
		w.eventually("ready", w.allReady)
		for by := 1; by <= 2; by++ {
			want := state(by)
			w.write(w.src, "v1", want...)
			w.eventually(fmt.Sprintf("exchange %d", by), func() bool {
				for _, m := range want {
					rec, err := w.dst.Get(t.Context(), w.tokens("v2")["a2"], m.Key)
					if err != nil || string(rec.Doc) != string(m.Doc) {
						return false
					}
				}
				return true
			})
		}
		w.eventually("ready again", w.allReady)
		journal.want(t)
		a.stop(t)
		b.stop(t)
	})
}

// TestUniqueValueThatIsKept: a record whose value another one keeps is parked alone, with a
// reason that names the other. Those that exchange values next to it come over. When the
// value is free it follows by itself.
func TestUniqueValueThatIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		keeper, wants, one, two := keyIn(0, 0), keyIn(1, 0), keyIn(2, 0), keyIn(3, 0)
		for i, key := range []string{keeper, wants, one, two} {
			w.put("a1", key, i)
		}
		journal := &parkings{Journal: w.store, keys: map[string]string{}}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Journal = journal })
		w.begin()
		w.eventually("ready", w.allReady)
		w.write(w.src, "v1", w.sized(wants, 0, 1), w.sized(one, 3, 1), w.sized(two, 2, 1))
		w.eventually("the exchange", func() bool { return w.target("a2", one) == 3 && w.target("a2", two) == 2 })
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		<-time.After(time.Minute)
		journal.want(t, wants)
		if why := journal.keys[wants]; !strings.Contains(why, keeper) || !strings.Contains(why, "n_1") {
			t.Errorf("parked for %q, want the index and %s", why, keeper)
		}
		w.put("a1", keeper, 7)
		w.eventually("the value", func() bool { return w.target("a2", wants) == 0 && len(w.parked()) == 0 })
		w.eventually("ready again", w.allReady)
		e.stop(t)
	})
}

// has reports whether the target has records as they were written.
func (w *world) has(ms ...record.Mutation) bool {
	for _, m := range ms {
		rec, err := w.dst.Get(w.t.Context(), w.tokens("v2")["a2"], m.Key)
		if err != nil || string(rec.Doc) != string(m.Doc) {
			return false
		}
	}
	return true
}

// TestRingTooLargeForOneWrite: records that exchange unique values and are together more than a
// database writes at once are parked, alone, with that as the reason. A record next to them comes
// over. Once one of them has another value they follow by themselves.
func TestRingTooLargeForOneWrite(t *testing.T) {
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		const members = 5
		state := func(by int) (out []record.Mutation) {
			for i := range members {
				out = append(out, w.sized(keyIn(i%ring, i/ring), 100+(i+by)%members, 14<<20))
			}
			return out
		}
		w.write(w.src, "v1", state(0)...)
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.begin()
		w.eventually("ready", w.allReady)
		turned, beside := state(1), w.sized(keyIn(0, 9), 7, 10)
		w.write(w.src, "v1", append(slices.Clone(turned), beside)...)
		w.eventually("parking", func() bool { return len(w.parked()) == members })
		for _, p := range w.parked() {
			if !strings.Contains(p.Error, "together they are more than") {
				t.Errorf("parked is %s for %q", p.Key, p.Error)
			}
		}
		w.eventually("the record beside", func() bool { return w.has(beside) })
		after := w.sized(keyIn(1, 9), 8, 10)
		w.write(w.src, "v1", after)
		w.eventually("a record after it", func() bool { return w.has(after) })
		turned[0] = w.sized(keyIn(0, 0), 999, 14<<20)
		w.write(w.src, "v1", turned[0])
		w.eventually("the ring that is open", func() bool { return w.has(turned...) && len(w.parked()) == 0 })
		w.eventually("ready again", w.allReady)
		e.stop(t)
	})
}

// TestRingOfManyRecords: a ring of more records than are followed one by one comes over, though
// no shard has two of them that stand next to each other, and nothing is parked for it.
func TestRingOfManyRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		const members = 120
		state := func(by int) (out []record.Mutation) {
			for i := range members {
				out = append(out, w.sized(keyIn(i%ring, i/ring), (i+by)%members, 10))
			}
			return out
		}
		w.write(w.src, "v1", state(0)...)
		journal := &parkings{Journal: w.store, keys: map[string]string{}}
		counted := func(p *syncer.Parts) { p.Journal = journal }
		a, b := w.engine(w.owner(0, 1), counted), w.engine(w.owner(2, 3), counted)
		w.begin()
		w.eventually("ready", w.allReady)
		turned := state(1)
		w.write(w.src, "v1", turned...)
		w.eventually("the exchange", func() bool { return w.has(turned...) })
		w.eventually("ready again", w.allReady)
		journal.want(t)
		a.stop(t)
		b.stop(t)
	})
}

// together counts the writes of groups that exchange values.
type together struct {
	record.Namespace
	n *atomic.Int64
}

func (c together) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if b.Together {
		c.n.Add(1)
	}
	return c.Namespace.Apply(ctx, b)
}

// TestRingOfTooManyRecords: a ring of more records than are written at once is parked after a
// bounded number of attempts, with a reason that is true. Others go on.
func TestRingOfTooManyRecords(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		const members = 600
		state := func(by int) (out []record.Mutation) {
			for i := range members {
				out = append(out, w.sized(keyIn(i%ring, i/ring), (i+by)%members, 10))
			}
			return out
		}
		w.write(w.src, "v1", state(0)...)
		var tries atomic.Int64
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = together{p.Target, &tries} })
		w.begin()
		w.eventually("ready", w.allReady)
		w.write(w.src, "v1", state(1)...)
		w.eventually("parking", func() bool { return len(w.parked()) == members })
		if n := tries.Load(); n > 2*members {
			t.Errorf("%d attempts", n)
		}
		for _, p := range w.parked() {
			if !strings.Contains(p.Error, "exchanges unique values") {
				t.Errorf("parked is %s for %q", p.Key, p.Error)
			}
		}
		beside := w.sized(keyIn(0, 5000), 7000, 10)
		w.write(w.src, "v1", beside)
		w.eventually("a record beside", func() bool { return w.has(beside) })
		e.stop(t)
	})
}

// restless is a target in which somebody else changes one record under every write.
type restless struct {
	record.Namespace
	key record.Key
	on  *atomic.Bool
}

func (r restless) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if !r.on.Load() {
		return r.Namespace.Apply(ctx, b)
	}
	out, rest, places := make([]record.Result, len(b.Groups)), b, []int(nil)
	rest.Groups = nil
	for i, g := range b.Groups {
		if slices.ContainsFunc(g.Writes, func(w record.Write) bool { return w.Key == r.key }) {
			out[i].Outcome = record.Changed
			continue
		}
		rest.Groups, places = append(rest.Groups, g), append(places, i)
	}
	if len(places) == 0 {
		return out, nil
	}
	res, err := r.Namespace.Apply(ctx, rest)
	for i, at := range places {
		if err == nil {
			out[at] = res[i]
		}
	}
	return out, err
}

// TestGroupThatKeepsChanging: a record that somebody else changes under every write is parked,
// alone, with that as the reason. Those of its batch and of its shard go on. It follows by itself
// once it is left alone.
func TestGroupThatKeepsChanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		busy, beside, later := keyIn(0, 0), keyIn(0, 1), keyIn(0, 2)
		for i, key := range []string{busy, beside, later} {
			w.put("a1", key, i)
		}
		var on atomic.Bool
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Target = restless{p.Target, record.StringKey(busy), &on}
		})
		w.begin()
		w.eventually("ready", w.allReady)
		on.Store(true)
		w.write(w.src, "v1", w.sized(busy, 10, 1), w.sized(beside, 11, 1))
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		if p := w.parked()[0]; !strings.Contains(p.Error, "keeps changing") || !strings.Contains(p.Key, busy) {
			t.Errorf("parked is %s for %q", p.Key, p.Error)
		}
		w.put("a1", later, 12)
		w.eventually("those next to it", func() bool { return w.target("a2", beside) == 11 && w.target("a2", later) == 12 })
		on.Store(false)
		w.eventually("the record", func() bool { return w.target("a2", busy) == 10 && len(w.parked()) == 0 })
		w.eventually("ready again", w.allReady)
		e.stop(t)
	})
}
