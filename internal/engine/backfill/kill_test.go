package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

var errKilled = errors.New("the process is gone")

// death kills an engine at one of the commands that it sends, to the database or to the
// coordination store: right before it, or right after it was done. From then on nothing
// that the engine sends arrives.
type death struct {
	at    int
	after bool
	kill  func()

	mu   sync.Mutex
	n    int
	dead bool
}

// meet decides what becomes of the next command.
func (d *death) meet() (before, after bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return true, false
	}
	if d.n++; d.n == d.at {
		d.dead = true
		d.kill()
		return !d.after, d.after
	}
	return false, false
}

func (d *death) struck() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

func do(d *death, f func() error) error {
	before, after := d.meet()
	if before {
		return errKilled
	}
	if err := f(); err != nil || !after {
		return err
	}
	return errKilled
}

func (d *death) Inject(faultstore.Op) faultstore.Fault {
	before, after := d.meet()
	switch {
	case before:
		return faultstore.Fault{Before: errKilled}
	case after:
		return faultstore.Fault{After: errKilled}
	}
	return faultstore.Fault{}
}

// mortal is the coordination store of an engine that is to be killed.
type mortal struct {
	backfill.Deployments
	backfill.Journal
	death *death
}

func (m mortal) Apply(ctx context.Context, ev upgradestate.Event, cs ...coord.Condition) (d upgradestate.Deployment, err error) {
	err = do(m.death, func() (err error) { d, err = m.Deployments.Apply(ctx, ev, cs...); return err })
	return d, err
}

func (m mortal) CreateUpdatePlan(ctx context.Context, d upgradestate.Deployment, p backfill.Plan) (out backfill.Plan, err error) {
	err = do(m.death, func() (err error) { out, err = m.Journal.CreateUpdatePlan(ctx, d, p); return err })
	return out, err
}

func (m mortal) LoadUpdateCheckpoint(ctx context.Context, id string, shard int) (c backfill.Checkpoint, found bool, err error) {
	err = do(m.death, func() (err error) { c, found, err = m.Journal.LoadUpdateCheckpoint(ctx, id, shard); return err })
	return c, found, err
}

func (m mortal) SaveUpdateCheckpoint(ctx context.Context, id string, shard int, c backfill.Checkpoint, cs ...coord.Condition) error {
	return do(m.death, func() error { return m.Journal.SaveUpdateCheckpoint(ctx, id, shard, c, cs...) })
}

// Killed before or after any of its commands, the next controller finishes the work, and
// no record is counted twice.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%t", after), func(t *testing.T) {
			t.Parallel()
			last := 0
			for at := 1; ; at++ {
				struck := false
				synctest.Test(t, func(t *testing.T) { struck = killAt(t, at, after) })
				if !struck || t.Failed() {
					last = at
					break
				}
			}
			// Plan, a checkpoint, two pages and a report of each shard at the least.
			if !t.Failed() && last < 1+ring*(1+2*2+1+1) {
				t.Errorf("only %d places to kill at", last-1)
			}
		})
	}
}

func killAt(t *testing.T, at int, after bool) (struck bool) {
	w := newWorld(t, false)
	w.seed(30)
	w.begin("u1", taskOf(fill))
	first := w.owner(0, 1, 2, 3)
	gone := make(chan struct{})
	var once sync.Once
	d := &death{at: at, after: after, kill: func() { once.Do(func() { close(gone) }) }}
	e := w.engine(first, taskOf(fill), func(p *backfill.Parts) {
		p.Namespace = func(string) backfill.Namespace { return faultstore.Wrap(w.ns, d) }
		m := mortal{w.store, w.store, d}
		p.Deployments, p.Journal = m, m
	})
	w.eventually("the kill, or the end", func() bool {
		select {
		case <-gone:
			return true
		default:
			return w.record().Update == nil
		}
	})
	e.stop(t)
	first.Lose(0, 1, 2, 3)
	second := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), nil)
	defer second.stop(t)
	out := w.outcome("u1")
	wantOutcome(t, out, "done; 30 seen, ")
	w.wantFilled(30)
	if t.Failed() {
		t.Logf("killed at command %d, after it: %t", at, after)
	}
	return d.struck()
}

// Shards change their owner while one hangs in a write; what it sends late, and
// what it would store, is refused.
func TestHandover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(60)
		w.begin("u1", taskOf(fill))
		gate := faultstore.NewGate(2)
		a, b := w.owner(0, 1), w.owner(2, 3)
		first := w.engine(a, taskOf(fill), over(faultstore.Wrap(w.ns, faultstore.On(gate, faultstore.Swap))))
		second := w.engine(b, taskOf(fill), nil)
		<-gate.Held()
		<-gate.Held()
		w.eventually("the other shards", func() bool { return len(w.record().Update.Done) == 2 })
		a.Lose(0, 1)
		b.Take(0, 1)
		wantOutcome(t, w.outcome("u1"), "done; 60 seen, 60 changed")
		// Somebody takes the region of a record back that the first is about to write.
		w.put(item{ID: key(0), N: 0})
		w.put(item{ID: key(1), N: 1, Region: "eu"})
		gate.Open()
		synctest.Wait()
		a.Forget(0, 1)
		first.stop(t)
		second.stop(t)
		// key(0) is again what the first had read: a swap of it is as good as one made now.
		if it := w.items()[key(1)]; it.Region != "eu" {
			t.Errorf("a late swap replaced what was written since: %+v", it)
		}
		if u := w.record().Update; u != nil {
			t.Errorf("an update runs: %+v", u)
		}
	})
}

// Two that see the run at once work by one plan, and records of earlier runs go.
func TestOnePlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		o := w.owner(0, 1, 2, 3)
		w.begin("u1", taskOf(fill))
		e := w.engine(o, taskOf(fill), nil)
		wantOutcome(t, w.outcome("u1"), "done")
		e.stop(t)
		w.begin("u2", taskOf(fill))
		d := w.record()
		mine := backfill.Plan{Total: 1, Ranges: []record.Range{{}}}
		p, err := w.store.CreateUpdatePlan(t.Context(), d, mine)
		w.check(err)
		theirs, err := w.store.CreateUpdatePlan(t.Context(), d, backfill.Plan{Total: 2})
		w.check(err)
		if p.Total != 1 || theirs.Total != 1 {
			t.Errorf("two plans stand: %+v, %+v", p, theirs)
		}
		if _, found, err := w.store.LoadUpdatePlan(t.Context(), "u1"); found || err != nil {
			t.Errorf("the plan of an earlier run is still there, %v", err)
		}
		if _, found, err := w.store.LoadUpdateCheckpoint(t.Context(), "u1", 0); found || err != nil {
			t.Errorf("a checkpoint of an earlier run is still there, %v", err)
		}
		// A controller that sleeps in an old record removes nothing of a later run.
		old := d
		u := *d.Update
		u.ID = "u1"
		old.Update, old.Revision = &u, d.Revision-1
		_, err = w.store.CreateUpdatePlan(t.Context(), old, mine)
		w.check(err)
		if _, found, err := w.store.LoadUpdatePlan(t.Context(), "u2"); !found || err != nil {
			t.Errorf("the plan that stands is gone, %v", err)
		}
	})
}

// The next owner of a shard goes on from its checkpoint.
func TestResumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		const records, pages = 100, 100 / 5
		w.seed(records)
		w.begin("u1", taskOf(fill))
		// Slow enough that there is a checkpoint after each page.
		slow := faultstore.On(faultstore.Always(faultstore.Fault{Latency: 50 * time.Millisecond}), faultstore.Scan)
		scans := faultstore.Count(slow)
		counted := faultstore.When(scans, func(op faultstore.Op) bool { return op.Command == faultstore.Scan })
		a := w.owner(0, 1, 2, 3)
		first := w.engine(a, taskOf(fill), over(faultstore.Wrap(w.ns, counted)))
		w.eventually("half of the pages", func() bool { return scans.Seen() >= pages/2 })
		first.stop(t)
		before := scans.Seen()
		a.Lose(0, 1, 2, 3)
		second := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), over(faultstore.Wrap(w.ns, counted)))
		defer second.stop(t)
		wantOutcome(t, w.outcome("u1"), "done; 100 seen, 100 changed")
		// Each of two workers may have lost the page that it was at.
		if n := scans.Seen() - before; n > pages-before+2 {
			t.Errorf("%d pages were read after %d of %d", n, before, pages)
		}
	})
}

// Errors of the database, with or without an effect, cost nothing but time.
func TestErrors(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]faultstore.Fault{"down": faultstore.Down(), "lost": faultstore.Lost(), "cut": faultstore.Cut()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, false)
				w.seed(100)
				w.begin("u1", taskOf(fill))
				faults := faultstore.Count(faultstore.Probability(1, 0.3, f))
				e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), over(faultstore.Wrap(w.ns, faults)))
				defer e.stop(t)
				wantOutcome(t, w.outcome("u1"), "done; 100 seen, ")
				w.wantFilled(100)
				faults.AssertFired(t, 10)
				if p := e.engine.Progress(); p.Problem != "" {
					t.Errorf("the problem is over: %s", p.Problem)
				}
			})
		})
	}
}

// sleeper stops before its first checkpoint of a shard that is not done.
type sleeper struct {
	backfill.Journal
	once  sync.Once
	slept chan struct{}
	wake  chan struct{}
	woken chan error
}

func (s *sleeper) SaveUpdateCheckpoint(ctx context.Context, id string, shard int, c backfill.Checkpoint, cs ...coord.Condition) error {
	sleeps := false
	if shard == 0 && !c.Done {
		s.once.Do(func() { sleeps = true })
	}
	if !sleeps {
		return s.Journal.SaveUpdateCheckpoint(ctx, id, shard, c, cs...)
	}
	close(s.slept)
	<-s.wake
	// A process that was stopped sends late, whatever the state of its context.
	err := s.Journal.SaveUpdateCheckpoint(context.WithoutCancel(ctx), id, shard, c, cs...)
	s.woken <- err
	return err
}

// A checkpoint of a former owner comes late, and does not take the shard back.
func TestLateCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(60)
		w.begin("u1", taskOf(fill))
		slow := faultstore.Wrap(w.ns, faultstore.On(faultstore.Always(faultstore.Fault{Latency: 50 * time.Millisecond}), faultstore.Scan))
		s := &sleeper{Journal: w.store, slept: make(chan struct{}), wake: make(chan struct{}), woken: make(chan error, 1)}
		a, b := w.owner(0), w.owner(1, 2)
		first := w.engine(a, taskOf(fill), func(p *backfill.Parts) { over(slow)(p); p.Journal = s })
		<-s.slept
		a.Lose(0)
		b.Take(0)
		second := w.engine(b, taskOf(fill), nil)
		w.eventually("the shards that are owned", func() bool { return len(w.record().Update.Done) == 3 })
		close(s.wake)
		if err := <-s.woken; !errors.Is(err, coord.ErrConflict) {
			t.Errorf("the late checkpoint: %v", err)
		}
		if c, _, err := w.store.LoadUpdateCheckpoint(t.Context(), "u1", 0); err != nil || !c.Done || c.Count.Seen != 15 {
			t.Errorf("%+v, %v", c, err)
		}
		a.Forget(0)
		w.eventually("the first has no shard", func() bool { return len(first.engine.Progress().Shards) == 0 })
		b.Take(3)
		wantOutcome(t, w.outcome("u1"), "done; 60 seen, ")
		w.wantFilled(60)
		first.stop(t)
		second.stop(t)
	})
}

// A record that changes once between the read and the swap is read as it is then, however
// far snapshots are behind.
func TestReadsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(1)
		w.begin("u1", taskOf(fill))
		gate := faultstore.NewGate(1)
		e := w.engine(w.owner(0, 1, 2, 3), taskOf(fill), over(faultstore.Wrap(w.ns, faultstore.On(gate, faultstore.Swap))))
		defer e.stop(t)
		<-gate.Held()
		w.put(item{ID: key(0), N: 99})
		gate.Open()
		wantOutcome(t, w.outcome("u1"), "done; 1 seen, 1 changed")
		if it := w.items()[key(0)]; it.N != 99 || it.Region != "us" {
			t.Errorf("%+v", it)
		}
	})
}

// A shard that is lost is left at once.
func TestLostShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.seed(30)
		w.begin("u1", taskOf(fill))
		gate := faultstore.NewGate(1)
		o := w.owner(0)
		e := w.engine(o, taskOf(fill), over(faultstore.Wrap(w.ns, faultstore.On(gate, faultstore.Scan))))
		<-gate.Held()
		o.Lose(0)
		o.Forget(0)
		synctest.Wait()
		gate.Open()
		synctest.Wait()
		for id, it := range w.items() {
			if it.Region != "" {
				t.Errorf("%s was filled by a former owner", id)
			}
		}
		e.stop(t)
	})
}
