package syncer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// meddler writes to a database as somebody who knows nothing of this project.
type meddler struct {
	w     *world
	store *memstore.Store
	names record.Tokens
}

func (w *world) hand() meddler { return meddler{w, w.dst, w.tokens("v2")} }

func (h meddler) put(kind, key string, n int) {
	h.w.t.Helper()
	doc, err := bson.Marshal(item{key, n})
	h.w.check(err)
	h.w.check(h.store.Foreign().Put(h.w.t.Context(), h.names[kind].Name, doc))
}

func (h meddler) remove(kind, key string) {
	h.w.t.Helper()
	h.w.check(h.store.Foreign().Delete(h.w.t.Context(), h.names[kind].Name, record.StringKey(key).Value()))
}

// meddle inserts, changes and deletes some records of the target, and says what the target must
// hold again.
func (h meddler) meddle() (want map[string]int) {
	h.w.t.Helper()
	want = map[string]int{}
	for shard := range ring {
		changed, deleted, inserted := keyIn(shard, 0), keyIn(shard, 1), keyIn(shard, 7)
		h.put("a2", changed, 1_000)
		h.remove("a2", deleted)
		h.put("a2", inserted, 2_000)
		want[changed], want[deleted], want[inserted] = shard, 10+shard, -1
	}
	return want
}

func (w *world) fill() {
	for shard := range ring {
		w.put("a1", keyIn(shard, 0), shard)
		w.put("a1", keyIn(shard, 1), 10+shard)
	}
}

func (w *world) agrees(want map[string]int) bool {
	for key, n := range want {
		if w.target("a2", key) != n {
			return false
		}
	}
	return true
}

// What somebody writes into the target by hand is gone before the shards are ready, or soon after
// it while they are, whether the engine runs then or not.
func TestForeignWritesToTheTarget(t *testing.T) {
	for _, phase := range []string{"ready", "between runs", "history lost", "while it changes"} {
		t.Run(phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fill()
				w.begin()
				o := w.owner(0, 1, 2, 3)
				r := w.engine(o, nil)
				w.eventually("ready", w.allReady)
				var want map[string]int
				switch phase {
				case "ready":
					want = w.hand().meddle()
				case "while it changes":
					for i := range 50 {
						key := keyIn(i%ring, 0)
						w.put("a1", key, 100+i)
						w.hand().put("a2", key, 9_000+i)
					}
					want = w.hand().meddle()
					for i := range ring {
						key := keyIn(i, 0)
						w.put("a1", key, 500+i)
						want[key] = 500 + i
					}
				default:
					r.stop(t)
					want = w.hand().meddle()
					if phase == "history lost" {
						w.dst.Cluster().LoseHistory()
					}
					r = w.engine(o, nil)
				}
				w.eventually("what the source holds", func() bool { return w.agrees(want) })
				w.eventually("ready again", func() bool { return w.allReady() && r.synced() })
				for _, p := range r.engine.Progress() {
					if p.WaitsFor != "" {
						w.eventually("nothing to wait for", func() bool { p, _ := r.progress(p.Shard); return p.WaitsFor == "" })
					}
				}
				if list := w.parked(); len(list) > 0 {
					t.Errorf("parked: %+v", list)
				}
				r.stop(t)
			})
		})
	}
}

// slowGroups compares groups more slowly than they change.
type slowGroups struct{ syncer.Comparer }

func (s slowGroups) Groups(ctx context.Context, src, dst transform.View, ids []transform.GroupID) ([]transform.Difference, error) {
	<-time.After(100 * time.Millisecond)
	return s.Comparer.Groups(ctx, src, dst, ids)
}

// A group that changes all the time, and faster than it can be compared, keeps no shard from being
// ready once others have changed it: the next change writes it anew.
func TestForeignWriteToWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill()
		w.begin()
		r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Comparer = slowGroups{p.Comparer} })
		w.eventually("ready", w.allReady)
		busy := keyIn(0, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		n := 0
		writer.Go(func() {
			for ; ctx.Err() == nil; n++ {
				w.put("a1", busy, n)
				<-time.After(20 * time.Millisecond)
			}
		})
		<-time.After(time.Second)
		w.hand().put("a2", busy, 9_000)
		w.eventually("it is noted", func() bool { p, _ := r.progress(0); return p.WaitsFor != "" })
		w.eventually("nothing to wait for", func() bool { p, _ := r.progress(0); return p.WaitsFor == "" && w.allReady() })
		cancel()
		writer.Wait()
		w.eventually("what the source holds", func() bool { return w.target("a2", busy) == n-1 })
		r.stop(t)
	})
}

// A report of readiness is taken back as long as nobody looks at the target, and no shard is
// drained that has not looked at it up to the beginning of the switch.
func TestDrainLooksAtTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill()
		w.begin()
		o := w.owner(0, 1, 2, 3)
		r := w.engine(o, nil)
		w.eventually("ready", w.allReady)
		now, err := w.dst.Position(t.Context())
		w.check(err)
		w.hand().meddle()
		later, err := w.dst.Position(t.Context())
		w.check(err)
		if now.At.Compare(later.At) >= 0 {
			t.Fatal("the target's clock stands")
		}
		w.apply(upgradestate.StartSwitch{ID: "u", TargetSince: fmt.Sprintf(`{"at":%q}`, later.At)})
		w.apply(upgradestate.Held{ID: "u"})
		for _, kind := range []string{"a1", "b1", "c1"} {
			w.apply(w.fence(kind))
		}
		w.eventually("drained", w.allReady)
		for shard := range ring {
			if have := w.target("a2", keyIn(shard, 0)); have != shard {
				t.Errorf("shard %d is drained, and the target holds %d, want %d", shard, have, shard)
			}
		}
		r.stop(t)
	})
}

// What is changed by hand in the old version behind its fence is gone before a rollback, also when
// nobody followed yet, or when the switch had not flipped yet. Neither is what the switch left there
// by a waiver taken for such a change, nor what the application changed before it.
func TestForeignWritesBehindTheFence(t *testing.T) {
	for _, when := range []string{"before the flip", "before it is followed", "while it is followed", "between runs"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i := range 6 {
					key := fmt.Sprintf("item-%d", i)
					w.write(w.src, "v1", mutation("a1", key, i))
					w.write(w.dst, "v2", mutation("a2", key, i))
				}
				w.write(w.src, "v1", mutation("a1", "waived", -1))
				w.drained(w.src, syncer.Key(1, w.dir, 0))
				w.write(w.src, "v1", mutation("a1", "item-5", 5)) // it is followed up to the fence
				meddle := func() {
					hand := meddler{w, w.src, w.tokens("v1")}
					hand.put("a1", "item-0", 1_000)
					hand.put("a1", "foreign", 2_000)
					hand.remove("a1", "item-1")
				}
				if when == "before the flip" {
					w.beforeFlip = meddle
				}
				w.flip(w.position(w.dst))
				if when == "before it is followed" {
					meddle()
				}
				following := when == "while it is followed" || when == "between runs"
				back := w.reverseSync()
				if following {
					w.eventually("following", back.synced)
				}
				if when == "between runs" {
					back.stop(t)
				}
				if following {
					meddle()
				}
				if when == "between runs" {
					for n := range ring {
						w.free(n)
					}
					back = w.reverseSync()
				}
				const want = "item-0=0 item-1=1 item-2=2 item-3=3 item-4=4 item-5=5 waived=-1"
				w.eventually("what v2 holds", func() bool { return w.holds(w.src, "v1", "a1") == want })
				w.eventually("following again", back.synced)
				back.stop(t)
			})
		})
	}
}

// countedReads counts the reads of a target's stream that bring changes.
type countedReads struct {
	record.Namespace
	reads *atomic.Int64
}

func (c countedReads) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	s, err := c.Namespace.Follow(ctx, from, toks)
	return countedStream{s, c.reads}, err
}

type countedStream struct {
	record.Stream
	reads *atomic.Int64
}

func (s countedStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	b, err := s.Stream.Next(ctx)
	if err == nil && len(b.Changes) > 0 {
		s.reads.Add(1)
	}
	return b, err
}

// gathering runs an engine that is ready, and counts the reads of its target's stream.
func gathering(t *testing.T, test func(w *world, reads *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		w, reads := newWorld(t), &atomic.Int64{}
		w.fill()
		w.begin()
		r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = countedReads{p.Target, reads} })
		w.eventually("ready", w.allReady)
		test(w, reads)
		r.stop(t)
	})
}

// The engine's own changes of the target are not read one by one while clients write.
func TestTargetsChangesGather(t *testing.T) {
	gathering(t, func(w *world, reads *atomic.Int64) {
		<-time.After(time.Second)
		before := reads.Load()
		const writes = 200 // one each 5 ms, a second in all
		for i := range writes {
			key := keyIn(i%ring, 0)
			w.put("a1", key, 100+i)
			w.eventually("it is applied", func() bool { return w.target("a2", key) == 100+i })
			<-time.After(5 * time.Millisecond)
		}
		if n := reads.Load() - before; n < 1 || n > writes/4 {
			w.t.Errorf("%d reads for %d changes", n, writes)
		}
	})
}

// A switch that begins while changes of the target gather does not wait for the rest of that time.
func TestSwitchEndsTheGathering(t *testing.T) {
	gathering(t, func(w *world, reads *atomic.Int64) {
		<-time.After(time.Second)
		before := reads.Load()
		w.put("a1", keyIn(0, 0), 100)
		for reads.Load() == before {
			<-time.After(time.Millisecond)
		}
		w.hand().meddle() // read only after the time to gather, or with the switch
		now, err := w.dst.Position(w.t.Context())
		w.check(err)
		began := time.Now() // simulated
		w.apply(upgradestate.StartSwitch{ID: "u", TargetSince: fmt.Sprintf(`{"at":%q}`, now.At)})
		w.apply(upgradestate.Held{ID: "u"})
		for _, kind := range []string{"a1", "b1", "c1"} {
			w.apply(w.fence(kind))
		}
		for !w.allReady() {
			<-time.After(time.Millisecond)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			w.t.Errorf("the drain takes %v of simulated time", took)
		}
		if n := w.target("a2", keyIn(0, 0)); n != 100 {
			w.t.Errorf("the target holds %d, want 100", n)
		}
	})
}
