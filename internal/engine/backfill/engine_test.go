package backfill_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

func TestFillsEveryRecord(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		t.Run(fmt.Sprintf("fixed=%t", fixed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fixed)
				w.seed(203)
				w.put(item{ID: "there", N: 7, Region: "eu"})
				w.begin("u1", taskOf(fill))
				e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), nil)
				defer e.stop(t)
				wantOutcome(t, w.outcome("u1"), "done; 204 seen, 203 changed")
				have := w.items()
				if have["there"].Region != "eu" {
					t.Errorf("%+v was filled before", have["there"])
				}
				for i := range 203 {
					if want := (item{ID: key(i), N: i, Region: "us"}); have[key(i)] != want {
						t.Errorf("%+v, want %+v", have[key(i)], want)
					}
				}
				// Begun again it finds everything done.
				w.begin("u2", taskOf(fill))
				wantOutcome(t, w.outcome("u2"), "done; 204 seen, 0 changed")
			})
		})
	}
}

// Clients count up in records that are being filled: no count is lost, and no region.
func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		t.Run(fmt.Sprintf("fixed=%t", fixed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fixed)
				const n, clients = 40, 4
				w.seed(n)
				// Everybody's commands take a while, so that they meet.
				var mu sync.Mutex
				rng := rand.New(rand.NewPCG(1, 2))
				slow := faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
					mu.Lock()
					defer mu.Unlock()
					f := faultstore.Fault{Latency: time.Duration(rng.IntN(3000)) * time.Microsecond}
					if op.Command == faultstore.Swap {
						f.Latency *= 5
					}
					return f
				})
				var counts [n]atomic.Int64
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				db, tok := faultstore.Wrap(w.ns, slow), w.token()
				for c := range clients {
					rng := rand.New(rand.NewPCG(3, uint64(c)))
					wg.Go(func() {
						for ctx.Err() == nil {
							i := rng.IntN(n)
							if w.count(context.WithoutCancel(ctx), db, tok, i) {
								counts[i].Add(1)
							}
						}
					})
				}
				w.begin("u1", taskOf(fill))
				var changed atomic.Int64
				e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), over(meeting{db, &changed}))
				out := w.outcome("u1")
				stop()
				wg.Wait()
				e.stop(t)
				wantOutcome(t, out, "done; 40 seen, 40 changed")
				for id, it := range w.items() {
					var i int
					_, err := fmt.Sscanf(id, "item-%d", &i)
					w.check(err)
					if it.N != i+int(counts[i].Load()) || it.Region != "us" {
						t.Errorf("%+v after %d counts from %d", it, counts[i].Load(), i)
					}
				}
				if changed.Load() == 0 {
					t.Error("the clients and the update did not meet")
				}
			})
		})
	}
}

// meeting counts the records that had changed when they were to be swapped.
type meeting struct {
	backfill.Namespace
	changed *atomic.Int64
}

func (m meeting) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	res, err := m.Namespace.Swap(ctx, tok, swaps)
	for _, r := range res {
		if r.Outcome == record.Changed {
			m.changed.Add(1)
		}
	}
	return res, err
}

// count adds one to a record by compare-and-write, as its client or application would. It
// reports whether it has.
func (w *world) count(ctx context.Context, db backfill.Namespace, tok record.Token, i int) bool {
	now, err := db.Position(ctx)
	w.check(err)
	k := record.StringKey(key(i))
	snap, err := db.Read(ctx, record.ReadRequest{Tokens: record.Tokens{"items": tok}, Select: []record.Selector{{Kind: "items", Key: k}}, NotBefore: now.At})
	w.check(err)
	was := snap.Records[0].Doc
	it := itemOf(was)
	it.N++
	if !tok.Fixed {
		err := w.ns.Write(ctx, record.Tokens{"items": tok}, []record.Mutation{{Kind: "items", Key: k, Doc: it.doc(), Match: record.MatchDoc(was)}})
		return err == nil
	}
	res, err := w.ns.Swap(ctx, tok, []record.Swap{{Key: k, Was: was, Doc: it.doc()}})
	w.check(err)
	return res[0].Outcome == record.Applied
}

// A record that has failed stays as it is, the others are done, and the history shows it.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unique, err := bson.Marshal(bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "region", Value: 1}}}, {Key: "name", Value: "region_1"}, {Key: "unique", Value: true}})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, false, unique)
		for i := range 40 {
			w.put(item{ID: key(i), N: i, Region: "old " + key(i)})
		}
		w.put(item{ID: "taken", N: -9, Region: "mine"})
		bad := taskOf(func(r record.Record) (bson.Raw, error) {
			it := itemOf(r.Doc)
			switch it.N {
			case 3:
				return nil, errPoison
			case 13:
				panic("thirteen")
			case 23:
				it.ID = "another"
			case 33:
				it.Region = "mine"
				return it.doc(), nil
			case -9:
				return nil, nil
			}
			it.Region = it.ID
			return it.doc(), nil
		})
		w.begin("u1", bad)
		e := w.engine(w.owner(0, 1, 2, 3), bad, nil)
		defer e.stop(t)
		wantOutcome(t, w.outcome("u1"), "not done: 4 records failed, such as ")
		for id, it := range w.items() {
			want := id
			switch it.N {
			case 3, 13, 23, 33:
				want = "old " + id
			case -9:
				want = "mine"
			}
			if it.Region != want {
				t.Errorf("%s: %+v", id, it)
			}
		}
		examples := map[string]bool{}
		for n := range ring {
			c, _, err := w.store.LoadUpdateCheckpoint(t.Context(), "u1", n)
			w.check(err)
			for _, f := range c.Examples {
				examples[f.Key] = f.Error != ""
			}
		}
		for _, i := range []int{3, 13, 23, 33} {
			if !examples[record.StringKey(key(i)).String()] {
				t.Errorf("%s is not among the failures %v", key(i), examples)
			}
		}
	})
}

// pacer holds everything back until it is let go.
type pacer struct {
	backfill.Pacer
	open chan struct{}
}

func (p pacer) Wait(ctx context.Context, _ int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.open:
		return nil
	}
}

func (p pacer) Reason() (string, bool) {
	select {
	case <-p.open:
		return "", false
	default:
		return "paused: lunch", true
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		p := pacer{throttle.New(throttle.Config{}), make(chan struct{})}
		w.begin("u1", taskOf(fill))
		e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), func(parts *backfill.Parts) { parts.Pacer = p })
		defer e.stop(t)
		w.eventually("the pause", func() bool { return e.engine.Progress().Waits == "paused: lunch" })
		synctest.Wait()
		for id, it := range w.items() {
			if it.Region != "" {
				t.Errorf("%s was filled during the pause", id)
			}
		}
		close(p.open)
		wantOutcome(t, w.outcome("u1"), "done")
		w.wantFilled(30)
	})
}

// Shards of a page each keep to the pace as larger ones do.
func TestPaceOfSmallShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(18)
		w.begin("u1", taskOf(fill))
		start := time.Now()
		e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), func(p *backfill.Parts) { p.Pacer = throttle.New(throttle.Config{MaxRate: 1}) })
		defer e.stop(t)
		wantOutcome(t, w.outcome("u1"), "done; 18 seen, 18 changed")
		// The last page of each of two workers is not waited for.
		if took := time.Since(start); took < 7*time.Second {
			t.Errorf("18 records took %s at one a second", took)
		}
	})
}

// A controller without the task leaves its shards alone, and the next owner does them.
func TestUnknownTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		w.begin("u1", taskOf(fill))
		other, old := taskOf(fill), taskOf(fill)
		other.Name, old.Revision = "other", "0"
		without := w.owner(0, 1)
		a := w.engine(without, other, nil)
		b := w.engine(w.owner(2), old, nil)
		c := w.owner(3)
		knows := w.engine(c, taskOf(fill), nil)
		defer knows.stop(t)
		w.eventually("what they wait for", func() bool {
			return a.engine.Progress().Waits == "controller c has no task fill-region: deploy it there, or cancel the update" &&
				b.engine.Progress().Waits == "controller c has another revision of task fill-region: deploy the same revision everywhere, or cancel the update and begin it again"
		})
		w.eventually("the shard of the one that has it", func() bool { return len(w.record().Update.Done) == 1 })
		synctest.Wait()
		if done := w.record().Update.Done; len(done) != 1 || done[0] != 3 {
			t.Errorf("shards %v are done", done)
		}
		a.stop(t)
		b.stop(t)
		without.Lose(0, 1, 2)
		c.Take(0, 1, 2)
		wantOutcome(t, w.outcome("u1"), "done; 30 seen, 30 changed")
		w.wantFilled(30)
	})
}

// Cancelled, it stops; what it has changed stays.
func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(100)
		w.begin("u1", taskOf(fill))
		gate := faultstore.NewGate(100)
		first := faultstore.When(gate, func(op faultstore.Op) bool { return op.Command == faultstore.Swap })
		skip := atomic.Int64{}
		e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), over(faultstore.Wrap(w.ns, faultstore.When(first, func(op faultstore.Op) bool {
			return op.Command != faultstore.Swap || skip.Add(1) > 3
		}))))
		<-gate.Held()
		w.apply(upgradestate.CancelUpdate{Reason: "lunch"})
		wantOutcome(t, w.outcome("u1"), "cancelled: lunch")
		gate.Open()
		e.stop(t)
		filled := 0
		for _, it := range w.items() {
			if it.Region != "" {
				filled++
			}
		}
		// Three pages, and one of each shard that was on its way, which the gate had let out too late to stop.
		if filled < 15 || filled > 15+4*5 {
			t.Errorf("%d items are filled", filled)
		}
	})
}

// restless reports one record as changed, however often it is read.
type restless struct{ backfill.Namespace }

func (r restless) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	res, err := r.Namespace.Swap(ctx, tok, swaps)
	for i, s := range swaps {
		if s.Key == record.StringKey(key(7)) && err == nil {
			res[i] = record.Result{Outcome: record.Changed}
		}
	}
	return res, err
}

func TestRestlessRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		restlessFill := taskOf(func(r record.Record) (bson.Raw, error) {
			it := itemOf(r.Doc)
			it.Region += "x" // never what it was
			return it.doc(), nil
		})
		w.begin("u1", restlessFill)
		e := w.engine(w.owner(0, 1, 2, 3), restlessFill, over(restless{w.ns}))
		defer e.stop(t)
		wantOutcome(t, w.outcome("u1"), "not done: 1 records failed, such as item-007: clients write it faster")
	})
}

// TestReadsNothingOlder: a server that does not know yet that it is no longer the primary
// is not believed, and asked again.
func TestReadsNothingOlder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.ns.Cluster().Depose()
		w.seed(30)
		w.begin("u1", taskOf(fill))
		e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), nil)
		defer e.stop(t)
		w.eventually("the refusal", func() bool { return e.engine.Progress().Problem != "" })
		w.ns.Cluster().Rejoin()
		wantOutcome(t, w.outcome("u1"), "done; 30 seen, 30 changed")
		w.wantFilled(30)
	})
}

// altered is the Deployment with something changed in each record that is delivered.
type altered struct {
	backfill.Deployments
	alter func(*upgradestate.Kind)
	again chan struct{} // delivers the newest once more
}

func (a altered) Watch(ctx context.Context) <-chan upgradestate.Deployment {
	out := make(chan upgradestate.Deployment)
	in := a.Deployments.Watch(ctx)
	go func() {
		defer close(out)
		var d upgradestate.Deployment
		for {
			select {
			case now, open := <-in:
				if !open {
					return
				}
				d = now
			case <-a.again:
			}
			c := upgradestate.Clone(d)
			a.alter(&c.Namespaces[0].Kinds[0])
			select {
			case out <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// While the record names no place to write nothing is written; a token of before is
// refused by the database, and the next record has the next one.
func TestFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		w.begin("u1", taskOf(fill))
		old := w.token()
		next := record.PhysicalName("items", 1)
		var fenced atomic.Bool
		fenced.Store(true)
		name := atomic.Pointer[string]{}
		name.Store(&old.Name)
		a := altered{w.store, func(k *upgradestate.Kind) {
			k.Physical = *name.Load()
			if fenced.Load() {
				k.Fenced = "somewhere"
			}
		}, make(chan struct{})}
		e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), func(p *backfill.Parts) { p.Deployments = a })
		defer e.stop(t)
		w.eventually("the wait", func() bool { return e.engine.Progress().Waits != "" })
		fenced.Store(false)
		w.check(w.ns.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: old, To: next}))
		a.again <- struct{}{} // writes are allowed, at the old name
		w.eventually("the refusal", func() bool { return e.engine.Progress().Waits != "" || e.engine.Progress().Problem != "" })
		name.Store(&next)
		a.again <- struct{}{}
		wantOutcome(t, w.outcome("u1"), "done; 30 seen, 30 changed")
		page, err := w.ns.Scan(t.Context(), record.ScanRequest{Token: record.Token{Kind: "items", Name: next, ID: old.ID}, Limit: 1000, NotBefore: w.now()})
		w.check(err)
		for _, r := range page.Records {
			if itemOf(r.Doc).Region != "us" {
				t.Errorf("%s is not filled", r.Key)
			}
		}
	})
}
