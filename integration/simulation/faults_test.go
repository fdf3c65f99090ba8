package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// weather is what networks and processes do, by a seed, while it is bad.
type weather struct {
	bad   atomic.Bool
	fired atomic.Int64

	mu     sync.Mutex
	rng    *rand.Rand
	asleep map[string]chan struct{} // closed when the process wakes up
}

func newWeather(seed uint64) *weather {
	return &weather{rng: rand.New(rand.NewPCG(seed, 77)), asleep: map[string]chan struct{}{}}
}

func (w *weather) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// of is the weather at one process's database: commands are lost on their way or on
// their rollback, are slow, and stand still with their process, before or after.
func (w *weather) of(id string) faultstore.Injector {
	return faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
		w.mu.Lock()
		var f faultstore.Fault
		if wake := w.asleep[id]; wake != nil {
			f.Pause = wake
		}
		w.mu.Unlock()
		if !w.bad.Load() {
			return f
		}
		n := w.roll(100)
		switch {
		case n < 3:
			f.Before = faultstore.Down().Before
		case n < 6:
			f.After = faultstore.Lost().After
		case n < 20:
			f.Latency = time.Duration(w.roll(30)) * time.Millisecond
		}
		if n < 6 {
			w.fired.Add(1)
		}
		return f
	})
}

// commits is the weather at a process's way to the coordination store.
func (w *weather) commits([]coord.Condition, []coord.Op) memcoord.Fault {
	if !w.bad.Load() {
		return memcoord.Deliver
	}
	switch w.roll(33) {
	case 0:
		w.fired.Add(1)
		return memcoord.LoseRequest
	case 1:
		w.fired.Add(1)
		return memcoord.LoseAnswer
	default:
		return memcoord.Deliver
	}
}

// sleep stops a process for a while, or only cuts it off.
func (w *weather) sleep(id string, p *process, d time.Duration, cutOnly bool) {
	wake := make(chan struct{})
	if cutOnly {
		p.conn.Cut()
	} else {
		p.conn.Pause()
		w.mu.Lock()
		w.asleep[id] = wake
		w.mu.Unlock()
	}
	pass(d)
	w.mu.Lock()
	delete(w.asleep, id)
	w.mu.Unlock()
	close(wake)
	p.conn.Heal()
}

// TestBadWeather: any command may fail, be done and not answered, or be slow, at servers
// and controllers; controllers stop or are cut off past their leases and come back. Once
// that ends the upgrade goes through, and whatever was acknowledged is there.
func TestBadWeather(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) { badWeather(t, newSystem, seed) })
}

func badWeather(t *testing.T, made founding, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := made(ctx, t)
	s.quiet()
	s.maxRate = 100
	w := newWeather(seed)
	a, pa := s.server(ctx, "server-a", func(_ string, c record.Client) record.Client {
		return faultstore.WrapClient(c, w.of("server-a"))
	})
	b, pb := s.server(ctx, "server-b", func(_ string, c record.Client) record.Client {
		return faultstore.WrapClient(c, w.of("server-b"))
	})
	tr := newTraffic(t, a, b)
	tr.lenient = true
	stop := drive(ctx, tr, seed, 3, 25, 40*time.Millisecond)
	pass(time.Second)
	processes := map[string]*process{"server-a": pa, "server-b": pb}
	for i := range 3 {
		id := fmt.Sprintf("controller-%d", i)
		processes[id] = s.controllerProcess(ctx, id, func(_ *process, _ string, ns record.Namespace) record.Namespace {
			return faultstore.Wrap(ns, w.of(id))
		})
	}
	for _, p := range processes {
		p.conn.OnCommit(w.commits)
	}
	s.begin(ctx)
	w.bad.Store(true)
	for end := time.Now().Add(25 * time.Second); time.Now().Before(end); {
		pass(time.Duration(w.roll(1500)) * time.Millisecond)
		id := fmt.Sprintf("controller-%d", w.roll(3))
		w.sleep(id, processes[id], time.Duration(200+w.roll(5000))*time.Millisecond, w.roll(3) == 0)
	}
	w.bad.Store(false)
	s.pursue(ctx)
	pass(2 * time.Second)
	stop()
	tr.settle(ctx, s)
	if w.fired.Load() == 0 {
		t.Error("the weather was fine")
	}
	t.Logf("%d faults, acked %v, %d upgrades, longest write %s", w.fired.Load(), tr.acked, s.begun, tr.pauseOf)
	cancel()
	for _, p := range processes {
		p.kill()
	}
}

// pursue begins again, after each abort, until the new version is active.
func (s *system) pursue(ctx context.Context) {
	s.t.Helper()
	for range 10 {
		d := s.await(ctx, "the end of the upgrade", rest)
		if d.CurrentVersion == "v2" {
			return
		}
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: fmt.Sprintf("upgrade-%d", s.begun+1), TargetVersion: "v2"})
		if err == nil {
			s.begun++
		}
	}
	s.t.Fatalf("no upgrade goes through")
}

// TestScale: controllers join while the copy runs, and leave again, by a shutdown or a
// crash; the shards are handed over, and the copy does not begin again.
func TestScale(t *testing.T) {
	raced.Leave(t)
	eachSeed(t, 8, func(t *testing.T, seed uint64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		s.maxRate = 12
		a, pa := s.server(ctx, "server-a", nil)
		tr := newTraffic(t, a)
		const writers, keys = 3, 50
		stop := drive(ctx, tr, seed, writers, keys, 20*time.Millisecond)
		pass(4 * time.Second)
		var running []*process
		join := func() {
			running = append(running, s.controller(ctx, fmt.Sprintf("controller-%d", len(running)), nil))
		}
		rng := rand.New(rand.NewPCG(seed, 5))
		join()
		pass(time.Duration(1+rng.IntN(1500)) * time.Millisecond)
		join()
		pass(time.Duration(1+rng.IntN(1500)) * time.Millisecond)
		join()
		s.begin(ctx)
		pass(time.Duration(1+rng.IntN(2000)) * time.Millisecond)
		for _, i := range rng.Perm(3)[:2] {
			if seed%2 == 0 {
				running[i].kill()
			} else {
				running[i].stop() // as a shutdown does
				<-running[i].done
			}
			pass(time.Duration(1+rng.IntN(1500)) * time.Millisecond)
		}
		s.await(ctx, "the flip", active("v2"))
		pass(time.Second)
		stop()
		tr.settle(ctx, s)
		if n := s.loads.Load(); n > writers*keys+2*(2*7+20) {
			t.Errorf("%d groups were copied, there are %d at most", n, writers*keys)
		}
		cancel()
		for _, p := range append(running, pa) {
			p.kill()
		}
	})
}
