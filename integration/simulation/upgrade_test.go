// Package simulation_test runs whole systems in memory, in simulated time: controllers,
// servers, clients, a coordination store and two databases, with faults in between.
package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
)

// drive runs writers until stop is called.
func drive(ctx context.Context, tr *traffic, seed uint64, writers, keys int, interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() { tr.run(ctx, w, seed, keys, interval) })
	}
	return func() { cancel(); wg.Wait() }
}

func TestUpgradeUnderTraffic(t *testing.T) {
	raced.Leave(t)
	for seed := range seeds(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSystem(ctx, t)
				a, pa := s.server(ctx, "server-a", nil)
				b, pb := s.server(ctx, "server-b", nil)
				tr := newTraffic(t, a, b)
				stop := drive(ctx, tr, seed, 6, 40, 3*time.Millisecond)
				pass(2 * time.Second)
				c1 := s.controller(ctx, "controller-1", nil)
				c2 := s.controller(ctx, "controller-2", nil)
				pass(time.Second)
				s.begin(ctx)
				d := s.await(ctx, "the flip", active("v2"))
				pass(2 * time.Second)
				stop()
				tr.settle(ctx, s)
				if tr.acked["v1"] == 0 || tr.acked["v2"] == 0 || tr.reads == 0 {
					t.Errorf("acked %v, reads %d: want all", tr.acked, tr.reads)
				}
				t.Logf("acked %v, reads %d, longest write %s, phases %v", tr.acked, tr.reads, tr.pauseOf, d.LastSwitch.Millis)
				cancel()
				for _, p := range []*process{pa, pb, c1, c2} {
					p.kill()
				}
			})
		})
	}
}
