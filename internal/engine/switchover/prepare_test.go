package switchover_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/upgradestate"
)

// preparing are checks that change something for the switch.
type preparing struct {
	checks
	prepare func(upgradestate.Deployment) error
}

func (p preparing) PrepareSwitch(_ context.Context, d upgradestate.Deployment) error {
	return p.prepare(d)
}

// TestPrepareSwitchComesLast: nothing is changed for a switch while anything else speaks
// against it, and the switch waits for what is.
func TestPrepareSwitchComesLast(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		var fine, prepared atomic.Bool
		var asked atomic.Int64
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Checks: preparing{
			checks{before: func(upgradestate.Deployment) error {
				if fine.Load() {
					return nil
				}
				return errors.New("shards are behind")
			}},
			func(d upgradestate.Deployment) error {
				if d.Upgrade.State != upgradestate.InitialSyncing {
					t.Errorf("asked in %s", d.Upgrade.State)
				}
				if asked.Add(1); prepared.Load() {
					return nil
				}
				return errors.New("an index cannot be stopped")
			},
		}})
		quiet(time.Minute)
		if n := asked.Load(); n > 0 {
			t.Errorf("prepared %d times while shards were behind", n)
		}
		fine.Store(true)
		quiet(time.Minute)
		if d := w.get(ctx); !upgradestate.ReadyToSwitch(d) || asked.Load() < 30 {
			t.Fatalf("asked %d times; upgrade %+v", asked.Load(), d.Upgrade)
		}
		prepared.Store(true)
		w.await(ctx, "the flip", open("v2"))
	})
}

// TestFencesAreReadyBeforeWritesAreHeld: the source is asked to make its fences ready once nothing
// else blocks the switch, which waits for that, and takes it back when the attempt ends.
func TestFencesAreReadyBeforeWritesAreHeld(t *testing.T) {
	t.Parallel()
	var ready, unready, early, late atomic.Int64
	var held atomic.Bool
	down := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Ready))
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v1": faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
		switch op.Command {
		case faultstore.Ready:
			if ready.Add(1); held.Load() {
				late.Add(1)
			}
		case faultstore.Unready:
			unready.Add(1)
			return faultstore.Fault{Latency: 5 * time.Second}
		case faultstore.Fence:
			if ready.Load() == 0 {
				early.Add(1)
			}
		default:
		}
		return down.Inject(op)
	})}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		lease, err := w.coord.Grant(ctx, time.Hour)
		w.check(err)
		w.check(w.admin.Register(ctx, lease, upgradestate.ServerState{ID: "deaf", Protocol: 1, Versions: []string{"v1", "v2"}}))
		down.On()
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{HoldTimeout: time.Minute, Policy: upgradestate.Policy{DeadlineMillis: time.Hour.Milliseconds()}})
		quiet(10 * time.Second)
		if d := w.get(ctx); !upgradestate.ReadyToSwitch(d) || ready.Load() < 5 {
			t.Fatalf("asked %d times; upgrade %+v", ready.Load(), d.Upgrade)
		}
		down.Off()
		w.await(ctx, "the hold", switching)
		held.Store(true)
		_, err = w.admin.Apply(ctx, upgradestate.Abort{ID: "u1", Reason: "a test"})
		w.check(err)
		begun := time.Now()
		w.await(ctx, "the end of the abort", open("v1"))
		if took := time.Since(begun); took > time.Second {
			t.Errorf("writes were held for %s more while it was taken back", took)
		}
		quiet(time.Minute)
		w.check(lease.Close(context.Background()))
	})
	if early.Load() > 0 || late.Load() > 0 || unready.Load() != 1 {
		t.Errorf("fenced %d times before it was ready, made ready %d times while writes were held, taken back %d times", early.Load(), late.Load(), unready.Load())
	}
}

// TestSlowLooksAreRare: looks at the databases that take long, as those at hundreds of kinds do,
// leave them most of the time.
func TestSlowLooksAreRare(t *testing.T) {
	t.Parallel()
	for latency, most := range map[time.Duration]int64{0: 62, 400 * time.Millisecond: 18} {
		var looks atomic.Int64
		kinds := simple
		kinds.inject = map[string]faultstore.Injector{"v1": faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
			if op.Command != faultstore.Hindrances {
				return faultstore.Fault{}
			}
			looks.Add(1)
			return faultstore.Fault{Latency: latency}
		})}
		inBubble(t, kinds, func(ctx context.Context, w *world) {
			w.report(ctx, 0)
			w.drive(ctx, switchover.Config{Checks: checks{before: func(upgradestate.Deployment) error { return errors.New("shards are behind") }}})
			quiet(time.Minute)
		})
		if n := looks.Load(); n > most || n < most/2 {
			t.Errorf("%d looks in a minute that take %s, want up to %d", n, latency, most)
		}
	}
}
