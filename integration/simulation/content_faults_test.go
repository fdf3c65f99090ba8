package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestContentBadWeather is TestBadWeather for groups by content: what controllers ask of
// the databases fails, is done and not answered, or is slow; they stop with a write in
// their hands, lose their shards, and come back.
func TestContentBadWeather(t *testing.T) {
	eachSeed(t, 5, contentWeather)
}

func contentWeather(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := contentSystem(ctx, t)
	s.quiet()
	s.maxRate = 60
	w := newWeather(seed)
	a, pa := s.server(ctx, "server-a", nil)
	c := newCrowd(t, a)
	c.lenient = true
	stop := c.drive(ctx, seed, 3, 12, 30*time.Millisecond)
	pass(2 * time.Second)
	processes := map[string]*process{}
	for i := range 3 {
		id := fmt.Sprintf("controller-%d", i)
		processes[id] = s.controllerProcess(ctx, id, func(_ *process, _ string, ns record.Namespace) record.Namespace {
			return faultstore.Wrap(ns, w.of(id))
		})
		processes[id].conn.OnCommit(w.commits)
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
	pass(time.Second)
	stop()
	c.settle(ctx, s)
	if w.fired.Load() == 0 {
		t.Error("the weather was fine")
	}
	t.Logf("%d faults, %d changes, %d upgrades", w.fired.Load(), c.acked, s.begun)
	cancel()
	pa.kill()
	for _, p := range processes {
		p.kill()
	}
}

// TestContentSlowReaders: controllers take their time between one reading of groups and the
// next, while writers pass records and names on between groups and drop them again; by odd
// seeds several records claim a name for a while. What is read is torn all the time.
func TestContentSlowReaders(t *testing.T) {
	raced.Leave(t)
	eachSeed(t, 4, contentSlowReaders)
}

func contentSlowReaders(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := contentSystem(ctx, t)
	w := newWeather(seed)
	a, pa := s.server(ctx, "server-a", nil)
	c := newCrowd(t, a)
	c.teams = 40 // so that a change seldom names all the groups that it has to do with
	c.collide = seed%2 == 1
	stop := c.drive(ctx, seed, 4, 8, 10*time.Millisecond)
	pass(2 * time.Second)
	var slow atomic.Bool
	slow.Store(true)
	processes := []*process{pa}
	for i := range 3 {
		processes = append(processes, s.controllerProcess(ctx, fmt.Sprintf("controller-%d", i), func(_ *process, _ string, ns record.Namespace) record.Namespace {
			return faultstore.Wrap(ns, faultstore.InjectorFunc(func(op faultstore.Op) (f faultstore.Fault) {
				if slow.Load() && op.Command == faultstore.Read {
					f.Latency = time.Duration(w.roll(20)) * time.Millisecond
				}
				return f
			}))
		}))
	}
	c.hold(true)
	s.begin(ctx)
	pass(20 * time.Second)
	stop()
	c.tidy(seed)
	stop = c.drive(ctx, seed+100, 4, 8, 10*time.Millisecond)
	slow.Store(false)
	c.hold(false)
	s.await(ctx, "the flip", active("v2"))
	pass(time.Second)
	stop()
	c.settle(ctx, s)
	cancel()
	for _, p := range processes {
		p.kill()
	}
}

// TestContentPoison: members that cannot be transformed are parked by their names, from
// whatever moment on, and block the switch until they are written anew; then the groups
// that they kept back are exact too.
func TestContentPoison(t *testing.T) {
	raced.Leave(t)
	eachSeed(t, 3, contentPoison)
}

func contentPoison(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := contentSystem(ctx, t)
	s.maxRate = 60
	a, pa := s.server(ctx, "server-a", nil)
	c := newCrowd(t, a)
	c.poison = 8
	stop := c.drive(ctx, seed, 3, 12, 50*time.Millisecond)
	pass(2 * time.Second)
	// One that nobody rewrites: there may be a moment at which none of the others is poison.
	rng := rand.New(rand.NewPCG(seed, 3))
	c.send(rng, []change{{Kind: "notes1", Thing: oldThing{ID: "stays", In: "poisoned", N: -1}}})
	c1 := s.controller(ctx, "controller-1", nil)
	c2 := s.controller(ctx, "controller-2", nil)
	s.begin(ctx)
	pass(20 * time.Second)
	stop()
	pass(12 * time.Second)
	list, err := s.admin.ParkedNow(ctx)
	s.check(err)
	named := map[string]bool{}
	for _, p := range list {
		named[p.Kind+"/"+p.Key] = true
		if !strings.Contains(p.Error, errPoison.Error()) {
			t.Errorf("parked %s/%s: %s", p.Kind, p.Key, p.Error)
		}
	}
	var bad []change
	for key, v := range c.things {
		if v.N < 0 {
			if !named[key] {
				t.Errorf("%s is not parked", key)
			}
			v.N = -v.N
			bad = append(bad, change{Kind: key[:len(key)-len(v.ID)-1], Thing: v})
		}
	}
	d, err := s.admin.Get(ctx)
	s.check(err)
	if d.CurrentVersion != "v1" || d.Upgrade == nil || d.Upgrade.State != upgradestate.InitialSyncing || len(bad) == 0 {
		t.Fatalf("%s is active, %d members are poison, the upgrade is %+v", d.CurrentVersion, len(bad), d.Upgrade)
	}
	for _, ch := range bad {
		c.send(rng, []change{ch})
		pass(50 * time.Millisecond)
	}
	s.await(ctx, "the flip", active("v2"))
	c.settle(ctx, s)
	cancel()
	for _, p := range []*process{pa, c1, c2} {
		p.kill()
	}
}
