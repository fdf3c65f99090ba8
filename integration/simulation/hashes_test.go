package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// lastGasp is drowsy, and, with die, its process ends as soon as it has written what it slept
// with: it does not repair by what it reads afterwards.
type lastGasp struct {
	drowsy
	die func()
}

func (n lastGasp) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if !n.asleep.Load() || n.die == nil {
		return n.drowsy.Apply(ctx, b)
	}
	n.sleep()
	defer n.die()
	return n.Namespace.Apply(context.WithoutCancel(ctx), b)
}

// announce says what a controller says that starts: it transforms so.
func (s *system) announce(ctx context.Context, revision string) {
	s.t.Helper()
	s.registry = registryOf(revision)
	_, err := s.admin.Apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: s.direction().Hash(), Precopied: true}})
	s.check(err)
}

// fallAsleep waits until a controller sleeps with an item in its hands, which is deleted then,
// and cuts it off from its leases. Nobody else has ever written that item.
func (d drowsy) fallAsleep(p *process, tr *traffic, item string) {
	d.asleep.Store(true)
	tr.put(tr.servers[0], oldItem{item, 1, 2})
	for since := time.Now(); d.waiting.Load() == 0; pass(time.Millisecond) {
		if time.Since(since) > time.Minute {
			tr.t.Fatalf("nobody falls asleep with %s", item)
		}
	}
	p.conn.Pause()
	tr.remove(tr.servers[0], item)
}

// awaitFollowing waits until a controller has all shards, has copied them and follows.
func (s *system) awaitFollowing(ctx context.Context, controller string) {
	s.t.Helper()
	follows := func(p syncer.Progress) bool {
		return p.Owner == controller && (p.State == "following" || p.State == "ready")
	}
	for since := time.Now(); ; pass(10 * time.Millisecond) {
		ps, err := s.admin.Progress(ctx)
		s.check(err)
		if len(ps) > 0 && !slices.ContainsFunc(ps, func(p syncer.Progress) bool { return !follows(p) }) {
			return
		}
		if time.Since(since) > 5*time.Minute {
			s.t.Fatalf("%s does not follow: %+v", controller, ps)
		}
	}
}

// TestTwoTransformations: a rolling update brings another revision of the transformers, and
// takes it back, under traffic. Controllers of either revision sleep over that with images in
// their hands and go on while others compare, when everything is ready, or after the switch.
// Those that do not sleep end at once and say why. What is there after the switch was made by
// the revision that is in use.
func TestTwoTransformations(t *testing.T) {
	eachSeed(t, 6, twoTransformations)
}

func twoTransformations(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	for i := range 20 { // nobody changes these
		tr.put(a, oldItem{fmt.Sprintf("still-%d", i), int64(i), i % 3})
	}
	// Between the times with traffic there is silence, for what a sleeper holds to be known.
	stop := func() {}
	traffic := func(d time.Duration) {
		stop()
		stop = drive(ctx, tr, seed, 3, 12, 10*time.Millisecond)
		pass(d)
	}
	silence := func() { stop(); pass(2 * time.Second) }
	traffic(200 * time.Millisecond)
	sleeper := func(id string) (drowsy, *process) {
		d := drowsy{asleep: &atomic.Bool{}, waiting: &atomic.Int64{}, wake: make(chan struct{})}
		return d, s.controllerProcess(ctx, id, func(p *process, version string, ns record.Namespace) record.Namespace {
			if version == "v1" {
				return ns
			}
			n := lastGasp{drowsy: d}
			n.Namespace = ns
			if seed%2 == 1 {
				n.die = p.die
			}
			return n
		})
	}
	d1, c1 := sleeper("first")
	pass(time.Duration(1+seed%4) * time.Second)
	silence()
	d1.fallAsleep(c1, tr, "ghost-1")
	awake := s.controller(ctx, "first-awake", nil)
	traffic(500 * time.Millisecond)
	s.announce(ctx, "2")
	<-awake.done
	if awake.foreign == nil || !strings.Contains(awake.foreign.Error(), "records of v2 are made with transform") {
		t.Errorf("a controller of the revision before ended with %v", awake.foreign)
	}
	d2, c2 := sleeper("second")
	traffic(time.Duration(5+seed%5) * time.Second) // copies, compares, follows
	silence()
	s.awaitFollowing(ctx, "second") // what is only copied is not in the hands of an applier
	d2.fallAsleep(c2, tr, "ghost-2")
	s.announce(ctx, "1")
	c3 := s.controller(ctx, "third", nil)
	traffic(time.Second)
	wake := func() {
		for d, c := range map[drowsy]*process{d1: c1, d2: c2} {
			d.asleep.Store(false)
			if seed%2 == 0 {
				c.conn.Heal() // it learns of the change before it goes on
				pass(20 * time.Millisecond)
			}
			close(d.wake)
			pass(20 * time.Millisecond)
			c.conn.Heal()
		}
	}
	switch seed % 3 {
	case 0:
		pass(time.Duration(seed*100) * time.Millisecond)
		wake()
		s.begin(ctx)
	case 1:
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "held", TargetVersion: "v2", Policy: upgradestate.Policy{Hold: true}})
		s.check(err)
		s.await(ctx, "ready", upgradestate.AllReady)
		wake()
		pass(time.Second)
		_, err = s.admin.Apply(ctx, upgradestate.AskSwitch{ID: "held"})
		s.check(err)
	default:
		s.begin(ctx)
	}
	s.await(ctx, "the flip", active("v2"))
	if seed%3 == 2 {
		pass(time.Second)
		wake()
	}
	pass(time.Second)
	stop()
	pass(10 * time.Second)
	tr.settle(ctx, s)
	cancel()
	for _, p := range []*process{pa, c1, c2, c3} {
		p.kill()
	}
}
