package simulation_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

func rest(d upgradestate.Deployment) bool { return d.Upgrade == nil }

// TestDeadlineAbortsByItself: nobody drains, and the driver that aborts for the deadline
// also finishes the abort, so that the old version is written again.
func TestDeadlineAbortsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		hangs := &atomic.Bool{}
		hangs.Store(true)
		c := s.controller(ctx, "controller", func(version string, ns record.Namespace) record.Namespace {
			return &stuck{Namespace: ns, hangs: hangs, stream: version == "v1"}
		})
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "once", TargetVersion: "v2", Policy: upgradestate.Policy{Retries: -1}})
		s.check(err)
		s.await(ctx, "the switch", func(d upgradestate.Deployment) bool {
			return d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
		})
		start := time.Now()
		d := s.await(ctx, "the end of the abort", rest)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("the abort took %s, the deadline is 10 s", took)
		}
		if _, places := upgradestate.WritePlaces(d); d.CurrentVersion != "v1" || len(places) == 0 {
			t.Errorf("version %s with write places %v, want v1 open", d.CurrentVersion, places)
		}
		cancel()
		c.kill()
	})
}

// TestAbortWhileTheDriverHolds: an operator's abort overtakes the driver, whose event is
// then outdated.
func TestAbortWhileTheDriverHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		lease, err := s.coord.Grant(ctx, time.Hour)
		s.check(err)
		// A server that never acknowledges keeps the driver in HOLD for a while.
		s.check(s.admin.Register(ctx, lease, upgradestate.ServerState{ID: "deaf", Protocol: 1, Versions: []string{"v1", "v2"}}))
		c := s.controller(ctx, "controller", nil)
		s.begin(ctx)
		s.await(ctx, "HOLD", func(d upgradestate.Deployment) bool {
			return d.Upgrade != nil && d.Upgrade.Step == upgradestate.StepHold
		})
		_, err = s.admin.Apply(ctx, upgradestate.Abort{ID: "upgrade-1", Reason: "the operator says so"})
		s.check(err)
		start := time.Now()
		s.await(ctx, "the end of the abort", rest)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the abort took %s", took)
		}
		cancel()
		c.kill()
		s.check(lease.Close(context.Background()))
	})
}
