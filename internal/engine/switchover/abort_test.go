package switchover_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/upgradestate"
)

// TestAbortDoesNotWaitForServers: an operator aborts while the driver waits for a server
// that does not answer.
func TestAbortDoesNotWaitForServers(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		lease, err := w.coord.Grant(ctx, time.Hour)
		w.check(err)
		w.check(w.admin.Register(ctx, lease, upgradestate.ServerState{ID: "deaf", Protocol: 1, Versions: []string{"v1", "v2"}}))
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{HoldTimeout: 5 * time.Second})
		w.await(ctx, "the hold", switching)
		quiet(500 * time.Millisecond)
		_, err = w.admin.Apply(ctx, upgradestate.Abort{ID: "u1", Reason: "a test"})
		w.check(err)
		start := time.Now()
		w.await(ctx, "the end of the abort", open("v1"))
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the abort took %s", took)
		}
		w.check(lease.Close(context.Background()))
	})
}

// TestHangingActInAbort: a try that hangs must not use up the patience of held writes.
func TestHangingActInAbort(t *testing.T) {
	t.Parallel()
	kinds := simple
	var tries atomic.Int64
	hangs := faultstore.On(faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
		if op.Command == faultstore.Fence || tries.Add(1) == 1 {
			return faultstore.Fault{Latency: time.Hour}
		}
		return faultstore.Fault{}
	}), faultstore.Fence, faultstore.Prevent)
	kinds.inject = map[string]faultstore.Injector{"v1": hangs}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Policy: upgradestate.Policy{Retries: -1}})
		w.await(ctx, "the switch", switching)
		start := time.Now()
		d := w.await(ctx, "the end of the abort", open("v1"))
		if took := time.Since(start); took > 14*time.Second || took < 10*time.Second {
			t.Errorf("writes were held for %s, want the deadline of 10 s and a short try", took)
		}
		if d.CurrentVersion != "v1" {
			t.Errorf("%s is active", d.CurrentVersion)
		}
	})
}

// TestDeadlineIsNotMissed by a driver that waits for its next try.
func TestDeadlineIsNotMissed(t *testing.T) {
	t.Parallel()
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v2": faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Fence)}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Policy: upgradestate.Policy{DeadlineMillis: 3000, Retries: -1}})
		w.await(ctx, "the switch", switching)
		start := time.Now()
		w.await(ctx, "the abort", func(d upgradestate.Deployment) bool {
			return d.Upgrade == nil || d.Upgrade.Step == upgradestate.StepAbort
		})
		if took := time.Since(start); took > 3010*time.Millisecond {
			t.Errorf("the abort began after %s", took)
		}
	})
}
