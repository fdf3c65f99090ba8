package switchover_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/switchover"
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
