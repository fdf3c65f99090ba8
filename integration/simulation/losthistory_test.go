package simulation_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
)

// TestHistoryIsLost: two controllers lose the change history, together and one after the
// other, in the copy and while they follow; one is killed in between. What clients have
// written and deleted meanwhile is there after the switch, and nothing else.
func TestHistoryIsLost(t *testing.T) {
	for seed := range seeds(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSystem(ctx, t)
				s.quiet()
				s.maxRate = 500
				a, pa := s.server(ctx, "server-a", nil)
				tr := newTraffic(t, a)
				stop := drive(ctx, tr, seed, 4, 40, 10*time.Millisecond)
				pass(2 * time.Second)
				deaf := map[string]*faultstore.Toggle{}
				controller := func(id string) *process {
					ear := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Watch, faultstore.Next))
					deaf[id] = ear
					return s.controller(ctx, id, func(version string, ns record.Namespace) record.Namespace {
						if version == "v1" {
							return faultstore.Wrap(ns, ear)
						}
						return ns
					})
				}
				lose := func(meanwhile func(), ids ...string) {
					for _, id := range ids {
						deaf[id].On()
					}
					pass(2500 * time.Millisecond) // traffic goes on
					meanwhile()
					s.db["v1"].(*memstore.Store).Cluster().LoseHistory()
					for _, id := range ids {
						deaf[id].Off()
					}
				}
				c1, c2 := controller("controller-1"), controller("controller-2")
				pass(500 * time.Millisecond)
				nothing := func() {}
				lose(nothing, "controller-1", "controller-2") // in the copy
				pass(10 * time.Second)
				lose(nothing, "controller-2") // while it follows
				pass(time.Duration(seed) * 700 * time.Millisecond)
				c1.kill()
				// When all shards are its own, and nobody writes afterwards what was lost.
				lose(stop, "controller-2")
				c3 := controller("controller-3")
				pass(time.Second)
				s.begin(ctx)
				s.await(ctx, "the flip", active("v2"))
				tr.settle(ctx, s)
				if tr.acked["v1"] == 0 {
					t.Error("nothing was written")
				}
				cancel()
				for _, p := range []*process{pa, c2, c3} {
					p.kill()
				}
			})
		})
	}
}
