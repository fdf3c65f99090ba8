package throttle_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/upgradestate"
)

// crowd is several deployments with bulk work in one process.
type crowd struct {
	t       *testing.T
	ctx     context.Context
	pacers  []*throttle.Pacer
	workers []*worker
	all     sync.WaitGroup
}

// crowded runs f with n deployments that share turns.
func crowded(t *testing.T, places, n int, f func(c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &crowd{t: t, ctx: ctx}
		turns := throttle.NewTurns(places)
		for range n {
			c.pacers, c.workers = append(c.pacers, throttle.New(throttle.Config{Turns: turns})), append(c.workers, &worker{})
		}
		f(c)
		cancel()
		c.all.Wait()
	})
}

// work lets a deployment read pages, until its worker is stopped.
func (c *crowd) work(i int) (stop func()) {
	ctx, stop := context.WithCancel(c.ctx)
	c.all.Go(func() { c.workers[i].run(ctx, c.t, c.pacers[i]) })
	synctest.Wait()
	return stop
}

// worked returns which deployments read pages within a time.
func (c *crowd) worked(d time.Duration) (which []bool) {
	before := make([]int64, len(c.workers))
	for i, w := range c.workers {
		before[i] = w.done.Load()
	}
	<-time.After(d)
	for i, w := range c.workers {
		which = append(which, w.done.Load() > before[i])
	}
	return which
}

func (c *crowd) want(when string, d time.Duration, want ...bool) {
	c.t.Helper()
	for i, worked := range c.worked(d) {
		if worked != want[i] {
			c.t.Errorf("%s: deployment %d works: %t, want %t", when, i, worked, want[i])
		}
	}
}

// TestTurns: as many deployments copy as there are places, and the others say why they wait. They
// follow in the order in which they asked.
func TestTurns(t *testing.T) {
	crowded(t, 2, 4, func(c *crowd) {
		stop := c.work(0)
		for i := 1; i < 4; i++ {
			c.work(i)
		}
		c.want("two places", 10*time.Second, true, true, false, false)
		for i, want := range []string{"", "", "at most 2 deployments of this process copy at the same time (copy.deployments), and 0 more come first", "and 1 more come first"} {
			why, standstill := c.pacers[i].Reason()
			if !strings.Contains(why, want) || standstill != (want != "") || (c.pacers[i].Cause() == throttle.CauseTurn) != (want != "") {
				t.Errorf("deployment %d waits: %q, %t, %q, want %q", i, why, standstill, c.pacers[i].Cause(), want)
			}
		}
		stop()
		synctest.Wait()
		c.pacers[0].Rest() // its copy is complete
		c.want("one is done", time.Second, false, true, true, false)
		if why, _ := c.pacers[2].Reason(); why != "" {
			t.Errorf("the one that works waits: %q", why)
		}
	})
}

// TestLongTurn: a copy of hours gives way to others, and goes on after them.
func TestLongTurn(t *testing.T) {
	crowded(t, 1, 2, func(c *crowd) {
		c.work(0)
		c.want("alone", 10*time.Minute, true, false)
		c.work(1)
		<-time.After(100 * time.Millisecond)
		c.want("the second", 30*time.Second, false, true)
		c.want("both", 2*time.Minute, true, true)
		if a, b := c.workers[0].done.Load(), c.workers[1].done.Load(); a == 0 || b == 0 {
			t.Errorf("%d and %d records", a, b)
		}
	})
}

// TestTurnOfOneThatStands: a deployment that cannot read keeps nobody away for long, whether an
// operator has paused it or its database is away.
func TestTurnOfOneThatStands(t *testing.T) {
	crowded(t, 1, 2, func(c *crowd) {
		c.work(0)
		c.work(1)
		c.pacers[0].Set(upgradestate.Pace{Paused: true}, 1)
		c.want("the first is paused", 2*time.Second, true, true) // a page of the first was on its way
		c.want("the first is paused", 5*time.Minute, false, true)
		if cause := c.pacers[0].Cause(); cause != throttle.CausePaused {
			t.Errorf("the first waits because of %q", cause)
		}
	})
	crowded(t, 1, 2, func(c *crowd) {
		if err := c.pacers[0].Wait(c.ctx, 0); err != nil { // and its page never ends
			t.Fatal(err)
		}
		c.work(1)
		c.want("a page takes long", 9*time.Second, false, false)
		c.want("it takes too long", 3*time.Second, false, true)
	})
}
