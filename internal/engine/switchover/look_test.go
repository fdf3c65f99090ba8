package switchover_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	us "dbcontroller.dev/upgradestate"
)

// followed is a Target with a place, whose changes are read as read does it.
type followed struct {
	read func(ctx context.Context, step us.Step, n int) (intruded bool, err error)

	mu    sync.Mutex
	steps []us.Step // in which reads began
	ended int
}

func (f *followed) Since(context.Context, string) (string, error) { return "place", nil }

func (f *followed) Changed(ctx context.Context, d us.Deployment) (func(context.Context, us.Deployment) error, error) {
	f.mu.Lock()
	f.steps = append(f.steps, d.Upgrade.Step)
	n := len(f.steps)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ended++
	}()
	intruded, err := f.read(ctx, d.Upgrade.Step, n)
	if err != nil || !intruded {
		return nil, err
	}
	return func(context.Context, us.Deployment) error { return switchover.ErrIntruded }, nil
}

// took waits as long as a read of the changes does.
func took(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// TestTargetIsReadWhileItIsSealed: the read of others' changes takes none of the pause while renames
// run, its result decides nevertheless, and a read that fails is repeated before the flip.
func TestTargetIsReadWhileItIsSealed(t *testing.T) {
	t.Parallel()
	const rename = 100 * time.Millisecond
	for name, tc := range map[string]struct {
		read  func(ctx context.Context, step us.Step, n int) (bool, error)
		reads int
		flip  time.Duration // at most, from the drain on
		abort bool
	}{
		"beside the renames": {func(ctx context.Context, _ us.Step, _ int) (bool, error) { return false, took(ctx, 2*rename) }, 1, 2*rename + 50*time.Millisecond, false},
		"longer":             {func(ctx context.Context, _ us.Step, _ int) (bool, error) { return false, took(ctx, 4*rename) }, 1, 4*rename + 50*time.Millisecond, false},
		"intruded":           {func(ctx context.Context, _ us.Step, n int) (bool, error) { return n == 1, took(ctx, rename) }, 2, 0, true},
		"failed":             {func(_ context.Context, _ us.Step, n int) (bool, error) { return false, errAt(n, 1) }, 2, 2*rename + 50*time.Millisecond, false},
		"failed, intruded":   {func(_ context.Context, _ us.Step, n int) (bool, error) { return n == 2, errAt(n, 1) }, 3, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := faultstore.On(faultstore.Always(faultstore.Fault{Latency: rename}), faultstore.Fence)
			kinds := simple
			kinds.inject = map[string]faultstore.Injector{"v1": slow, "v2": slow}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				f := &followed{read: tc.read}
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Target: f})
				d := w.await(ctx, "the flip", open("v2"))
				if aborted := w.abortReason() != ""; aborted != tc.abort {
					t.Errorf("given up because of %q", w.abortReason())
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.steps) != tc.reads || f.ended != tc.reads || f.steps[0] != us.StepSealTarget {
					t.Errorf("read in %v, %d ended", f.steps, f.ended)
				}
				if flip := time.Duration(d.LastSwitch.Millis["flip"]) * time.Millisecond; tc.flip > 0 && flip > tc.flip {
					t.Errorf("the flip took %s, want at most %s", flip, tc.flip)
				}
			})
		})
	}
}

func errAt(n, at int) error {
	if n == at {
		return errors.New("no primary")
	}
	return nil
}

// TestAbortWaitsForNoReadOfTheTarget: a seal that fails for good ends the attempt at once, although
// the read of the target waits for that seal.
func TestAbortWaitsForNoReadOfTheTarget(t *testing.T) {
	t.Parallel()
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v2": faultstore.On(faultstore.Nth(1, faultstore.Fault{Before: record.ErrTaken}), faultstore.Fence)}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		f := &followed{read: func(ctx context.Context, _ us.Step, _ int) (bool, error) { return false, took(ctx, time.Hour) }}
		begun := time.Now()
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Target: f, Policy: us.Policy{DeadlineMillis: 60_000, Retries: -1}})
		w.await(ctx, "the abort", func(d us.Deployment) bool { return d.Upgrade == nil })
		if took := time.Since(begun); took > 10*time.Second || w.abortReason() == "" {
			t.Errorf("it took %s, because of %q", took, w.abortReason())
		}
		quiet(time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.steps) != 1 || f.ended != 1 {
			t.Errorf("read in %v, %d ended", f.steps, f.ended)
		}
	})
}

// TestAbortWaitsForNoSecondReadOfTheTarget: the target stops answering after the first read of its
// changes has failed. Its answer to the end of the second one comes late, and the abort does not wait
// for it.
func TestAbortWaitsForNoSecondReadOfTheTarget(t *testing.T) {
	t.Parallel()
	const deadline, late = 10 * time.Second, 30 * time.Second
	inBubble(t, simple, func(ctx context.Context, w *world) {
		f := &followed{read: func(ctx context.Context, _ us.Step, n int) (bool, error) {
			if n == 1 {
				return false, errAt(n, 1)
			}
			err := took(ctx, time.Hour)
			time.Sleep(late)
			return false, err
		}}
		begun := time.Now()
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Target: f, Policy: us.Policy{DeadlineMillis: deadline.Milliseconds(), Retries: -1}})
		w.await(ctx, "the abort", func(d us.Deployment) bool { return d.Upgrade == nil })
		if took := time.Since(begun); took > deadline+late/2 || w.abortReason() == "" {
			t.Errorf("it took %s, because of %q", took, w.abortReason())
		}
		quiet(2 * late)
	})
}
