package simulation_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
)

// drowsy is a Namespace whose applications sleep on their way, while asleep.
type drowsy struct {
	record.Namespace
	asleep  *atomic.Bool
	waiting *atomic.Int64
	wake    chan struct{}
}

func (n drowsy) sleep() {
	if n.asleep.Load() {
		n.waiting.Add(1)
		<-n.wake
	}
}

func (n drowsy) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	n.sleep()
	return n.Namespace.Apply(ctx, b)
}

func (n drowsy) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	n.sleep()
	return n.Namespace.Load(ctx, b)
}

// TestControllerSleepsOverTheSwitch: a controller has read and transformed, and stops
// before it writes. Another one takes over, the new version becomes active and is written
// to; then the first one goes on. What it holds is of the past, whatever it asks for
// before it sends it.
func TestControllerSleepsOverTheSwitch(t *testing.T) {
	raced.Leave(t)
	eachSeed(t, 8, func(t *testing.T, seed uint64) { sleepyController(t, newSystem, seed) })
}

func sleepyController(t *testing.T, made founding, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := made(ctx, t)
	s.quiet()
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	const writers, keys = 3, 8 // each is written again and again
	stop := drive(ctx, tr, seed, writers, keys, 10*time.Millisecond)
	pass(200 * time.Millisecond)
	d := drowsy{asleep: &atomic.Bool{}, waiting: &atomic.Int64{}, wake: make(chan struct{})}
	early := seed%4 == 3 // in the copy
	d.asleep.Store(early)
	c1 := s.controller(ctx, "controller-1", func(version string, ns record.Namespace) record.Namespace {
		if version == "v1" {
			return ns
		}
		n := d
		n.Namespace = ns
		return n
	})
	if !early {
		pass(3 * time.Second)
		d.asleep.Store(true)
	}
	for d.waiting.Load() == 0 {
		pass(time.Millisecond)
	}
	c1.conn.Pause()
	c2 := s.controller(ctx, "controller-2", nil)
	s.begin(ctx)
	s.await(ctx, "the flip", active("v2"))
	pass(time.Duration(1+seed%3) * time.Second)
	d.asleep.Store(false)
	if seed%2 == 0 {
		c1.conn.Heal() // it learns of the switch before it goes on
		pass(20 * time.Millisecond)
		close(d.wake)
	} else {
		close(d.wake)
		pass(20 * time.Millisecond)
		c1.conn.Heal()
	}
	pass(20 * time.Millisecond)
	stop()
	pass(10 * time.Second)
	tr.settle(ctx, s)
	cancel()
	for _, p := range []*process{pa, c1, c2} {
		p.kill()
	}
}
