package simulation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
)

// TestPause: every command of a database and of the coordination store takes a
// millisecond, and nothing else takes time. So writes wait for the commands that a switch
// needs one after another, and a timer or a backoff among them would be seen.
func TestPause(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		slow := faultstore.When(faultstore.Always(faultstore.Fault{Latency: time.Millisecond}),
			func(op faultstore.Op) bool { return op.Command != faultstore.Next })
		commits := func([]coord.Condition, []coord.Op) memcoord.Fault {
			pass(time.Millisecond)
			return memcoord.Deliver
		}
		a, pa := s.server(ctx, "server-a", func(_ string, c record.Client) record.Client { return faultstore.WrapClient(c, slow) })
		pa.conn.OnCommit(commits)
		tr := newTraffic(t, a)
		stop := drive(ctx, tr, seed, 4, 40, 10*time.Millisecond)
		pass(500 * time.Millisecond)
		var controllers []*process
		for i := range 1 + seed%3 {
			p := s.controller(ctx, fmt.Sprintf("controller-%d", i), func(_ string, ns record.Namespace) record.Namespace {
				return faultstore.Wrap(ns, slow)
			})
			p.conn.OnCommit(commits)
			controllers = append(controllers, p)
		}
		s.begin(ctx)
		d := s.await(ctx, "the flip", active("v2"))
		pass(500 * time.Millisecond)
		stop()
		tr.settle(ctx, s)
		if tr.pauseOf > 40*time.Millisecond {
			t.Errorf("a write waited %s", tr.pauseOf)
		}
		t.Logf("longest write %s, phases %v", tr.pauseOf, d.LastSwitch.Millis)
		cancel()
		for _, p := range append(controllers, pa) {
			p.kill()
		}
	})
}
