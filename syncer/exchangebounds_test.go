package syncer_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

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
