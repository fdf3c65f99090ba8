package switchover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestPhasesAreMeasured, each by its own work.
func TestPhasesAreMeasured(t *testing.T) {
	t.Parallel()
	slow := faultstore.On(faultstore.Always(faultstore.Fault{Latency: 100 * time.Millisecond}), faultstore.Fence)
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v1": slow, "v2": slow}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		w.report(ctx, 300*time.Millisecond)
		w.drive(ctx, switchover.Config{})
		d := w.await(ctx, "the flip", open("v2"))
		l := d.LastSwitch
		if l == nil || l.ID != "u1" || l.From != "v1" || l.To != "v2" || l.At == "" {
			t.Fatalf("last switch %+v", l)
		}
		for phase, least := range map[string]int64{"hold": 0, "fence": 100, "drain": 300, "flip": 200} {
			if took, ok := l.Millis[phase]; !ok || took < least || took > least+90 {
				t.Errorf("%s took %d ms (%t), want about %d", phase, took, ok, least)
			}
		}
		if d.Epoch != 2 {
			t.Errorf("epoch %d", d.Epoch)
		}
	})
}

// TestDeafServer: a server that does not acknowledge costs HoldTimeout and no more.
func TestDeafServer(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		lease, err := w.coord.Grant(ctx, time.Hour)
		w.check(err)
		w.check(w.admin.Register(ctx, lease, upgradestate.ServerState{ID: "deaf", Protocol: 1, Versions: []string{"v1", "v2"}}))
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{HoldTimeout: 700 * time.Millisecond})
		d := w.await(ctx, "the flip", open("v2"))
		if held := d.LastSwitch.Millis["hold"]; held < 700 || held > 750 {
			t.Errorf("held for %d ms, want 700", held)
		}
		w.check(lease.Close(context.Background()))
	})
}

// TestAcknowledged: with the acknowledgement for this attempt the hold ends at once.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		lease, err := w.coord.Grant(ctx, time.Hour)
		w.check(err)
		state := upgradestate.ServerState{ID: "good", Protocol: 1, Versions: []string{"v1", "v2"}, AckID: "u1", AckAttempt: 1}
		w.check(w.admin.Register(ctx, lease, state)) // for an attempt before: does not count
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{HoldTimeout: 5 * time.Second})
		d := w.await(ctx, "the hold", func(d upgradestate.Deployment) bool { return switching(d) })
		quiet(400 * time.Millisecond)
		if step := w.get(ctx).Upgrade.Step; step != upgradestate.StepHold {
			t.Fatalf("step %s without an acknowledgement", step)
		}
		state.AckAttempt = d.Upgrade.Attempt
		w.check(w.admin.Register(ctx, lease, state))
		d = w.await(ctx, "the flip", open("v2"))
		if held := d.LastSwitch.Millis["hold"]; held < 400 || held > 500 {
			t.Errorf("held for %d ms, want 400", held)
		}
		w.check(lease.Close(context.Background()))
	})
}

// eachFails lets the first try of each operation fail and loses the answer of the second.
type eachFails struct {
	mu    sync.Mutex
	tries map[string]int
}

func (e *eachFails) Inject(op faultstore.Op) faultstore.Fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	act := fmt.Sprint(op.Command, op.Kinds, op.To)
	e.tries[act]++
	switch e.tries[act] {
	case 1:
		return faultstore.Down()
	case 2:
		return faultstore.Lost()
	default:
		return faultstore.Fault{}
	}
}

// TestActsAreTriedAgain: a server that is down for a moment and acknowledgements that
// are lost delay a switch, and nothing else.
func TestActsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, class := range []record.FenceClass{"", record.FenceView, record.FenceValidator, record.FenceWriteBlock} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			faults := faultstore.Count(&eachFails{tries: map[string]int{}})
			kinds := fixed(class)
			kinds.inject = map[string]faultstore.Injector{"v1": faults, "v2": faults}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Policy: upgradestate.Policy{DeadlineMillis: 60_000}})
				d := w.await(ctx, "the flip", open("v2"))
				if w.abortReason() != "" || d.Epoch != 2 {
					t.Errorf("epoch %d, aborted for %q", d.Epoch, w.abortReason())
				}
				faults.AssertFired(t, 6)
			})
		})
	}
}

// TestParkedGroups keep a switch from beginning until somebody has resolved them.
func TestParkedGroups(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.park(func(upgradestate.Deployment) int { return 2 })
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{})
		quiet(time.Minute)
		if d := w.get(ctx); !upgradestate.ReadyToSwitch(d) {
			t.Fatalf("upgrade %+v, want one that is ready and waits", d.Upgrade)
		}
		w.park(func(upgradestate.Deployment) int { return 0 })
		start := time.Now()
		w.await(ctx, "the flip", open("v2"))
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("noticed after %s", took)
		}
	})
}

// TestParkedDuringTheSwitch aborts it, with nothing lost but time.
func TestParkedDuringTheSwitch(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.park(func(d upgradestate.Deployment) int {
			if switching(d) {
				return 3
			}
			return 0
		})
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{})
		d := w.await(ctx, "the end of the abort", open("v1"))
		if reason := w.abortReason(); !strings.Contains(reason, "3 groups were parked") || d.LastSwitch != nil {
			t.Errorf("aborted for %q, last switch %+v", reason, d.LastSwitch)
		}
	})
}

// checks are a switchover.Checks of two functions.
type checks struct {
	before, seal func(upgradestate.Deployment) error
}

func (c checks) BeforeSwitch(_ context.Context, d upgradestate.Deployment) []error {
	if c.before == nil {
		return nil
	}
	if err := c.before(d); err != nil {
		return []error{err}
	}
	return nil
}

func (c checks) BeforeSeal(_ context.Context, d upgradestate.Deployment) error {
	if c.seal == nil {
		return nil
	}
	return c.seal(d)
}

func TestBeforeSwitchDelays(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		var fine atomic.Bool
		var asked atomic.Int64
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Checks: checks{before: func(upgradestate.Deployment) error {
			if asked.Add(1); fine.Load() {
				return nil
			}
			return errors.New("shards are behind")
		}}})
		quiet(time.Minute)
		if d := w.get(ctx); !upgradestate.ReadyToSwitch(d) || asked.Load() < 30 {
			t.Fatalf("asked %d times; upgrade %+v", asked.Load(), d.Upgrade)
		}
		fine.Store(true)
		start := time.Now()
		w.await(ctx, "the flip", open("v2"))
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("noticed after %s", took)
		}
	})
}

func TestBeforeSealAborts(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Checks: checks{seal: func(d upgradestate.Deployment) error {
			if d.Upgrade.Step != upgradestate.StepDrain || !upgradestate.AllReady(d) {
				t.Errorf("asked in step %s", d.Upgrade.Step)
			}
			return errors.New("an index is not built")
		}}})
		d := w.await(ctx, "the end of the abort", open("v1"))
		if reason := w.abortReason(); reason != "an index is not built" || d.LastSwitch != nil || d.Epoch != 1 {
			t.Errorf("aborted for %q, epoch %d, last switch %+v", reason, d.Epoch, d.LastSwitch)
		}
	})
}

// TestManyKinds: as many operations at once as there are kinds.
func TestManyKinds(t *testing.T) {
	t.Parallel()
	var kinds kindsOf
	for i := range 70 { // more than a commit of the coordination store may touch
		kinds.v1 = append(kinds.v1, record.KindSpec{Name: fmt.Sprintf("old%03d", i)})
	}
	kinds.v2 = simple.v2
	slow := faultstore.On(faultstore.Always(faultstore.Fault{Latency: 100 * time.Millisecond}), faultstore.Fence)
	kinds.inject = map[string]faultstore.Injector{"v1": slow, "v2": slow}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{})
		d := w.await(ctx, "the flip", open("v2"))
		if took := d.LastSwitch.Millis["fence"]; took < 100 || took > 500 {
			t.Errorf("fencing took %d ms: kinds wait for each other", took)
		}
	})
}

// TestTwoDrivers at once, such as one that lost its lock without knowing, disturb each
// other at most.
func TestTwoDrivers(t *testing.T) {
	t.Parallel()
	for _, class := range []record.FenceClass{"", record.FenceView, record.FenceValidator} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			inBubble(t, fixed(class), func(ctx context.Context, w *world) {
				w.report(ctx, 10*time.Millisecond)
				w.drive(ctx, switchover.Config{})
				w.drive(ctx, switchover.Config{})
				d := w.await(ctx, "the flip", open("v2"))
				quiet(time.Minute)
				if now := w.get(ctx); now.Revision != d.Revision || d.Epoch != 2 {
					t.Errorf("epoch %d, revisions %d and %d: something goes on", d.Epoch, d.Revision, now.Revision)
				}
			})
		})
	}
}
