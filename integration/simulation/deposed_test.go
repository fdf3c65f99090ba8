package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/memstore"
)

// TestDeposedPrimary: again and again, for a while, the databases are read from servers that
// were the primary and do not know yet that they are not: when the copy begins, in the copy,
// in the comparison, and while changes are followed. What was acknowledged is there after the
// switch, and nothing else.
func TestDeposedPrimary(t *testing.T) {
	for seed := range seeds(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSystem(ctx, t)
				s.quiet()
				s.maxRate = 100
				rng := rand.New(rand.NewPCG(seed, 7))
				a, pa := s.server(ctx, "server-a", nil)
				tr := newTraffic(t, a)
				stop := drive(ctx, tr, seed, 4, 40, 3*time.Millisecond)
				pass(time.Second)
				deposed := func(d time.Duration) {
					version := []string{"v1", "v1", "v2"}[rng.IntN(3)]
					c := s.db[version].(*memstore.Store).Cluster()
					c.Depose()
					pass(d)
					c.Rejoin()
				}
				c := s.db["v1"].(*memstore.Store).Cluster()
				c.Depose() // from before the plan
				pass(2 * time.Second)
				stop() // what was written up to now is in no change that anybody follows
				c1 := s.controller(ctx, "controller-1", nil)
				c2 := s.controller(ctx, "controller-2", nil)
				pass(2 * time.Second)
				c.Rejoin()
				stop = drive(ctx, tr, seed, 2, 20, 5*time.Millisecond)
				for range 5 {
					pass(time.Duration(rng.IntN(1500)) * time.Millisecond)
					deposed(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
				s.begin(ctx)
				s.await(ctx, "the flip", active("v2"))
				stop()
				tr.settle(ctx, s)
				if tr.acked["v1"] == 0 {
					t.Error("nothing was written")
				}
				cancel()
				for _, p := range []*process{pa, c1, c2} {
					p.kill()
				}
			})
		})
	}
}
