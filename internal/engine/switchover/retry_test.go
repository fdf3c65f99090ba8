package switchover_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// outage is a world whose target does not answer to fences for a while, as through a failover.
func outage() (kindsOf, *faultstore.Toggle) {
	down := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Fence, faultstore.Hindrances))
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v2": down}
	return kinds, down
}

// between is the record of an upgrade that waits for its next attempt.
func between(d upgradestate.Deployment) bool {
	_, places := upgradestate.WritePlaces(d)
	return d.Upgrade != nil && d.Upgrade.Failures > 0 && d.Upgrade.State == upgradestate.InitialSyncing && len(places) > 0
}

func told(d upgradestate.Deployment) []string {
	var all []string
	for _, e := range d.History {
		all = append(all, strings.TrimSpace(e.What+" "+e.Detail+" "+e.Outcome))
	}
	return all
}

// TestFailoverIsTriedAgain: the target does not answer for longer than an attempt may
// last. Writes flow, and when it is back the same upgrade switches by itself.
func TestFailoverIsTriedAgain(t *testing.T) {
	t.Parallel()
	kinds, down := outage()
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Checks: checks{seal: func(d upgradestate.Deployment) error {
			if d.Upgrade.Failures == 0 {
				down.On()
			}
			return nil
		}}})
		d := w.await(ctx, "the end of the first attempt", between)
		if d.Upgrade.ID != "u1" || !strings.Contains(d.Upgrade.LastFailure, "deadline of 10s in step DRAIN") {
			t.Errorf("upgrade %+v", d.Upgrade)
		}
		quiet(time.Minute) // the target is away: nothing begins
		if d := w.get(ctx); !between(d) || d.Upgrade.Failures != 1 {
			t.Fatalf("an attempt began against a database that does not answer: %+v", d.Upgrade)
		}
		down.Off()
		d = w.await(ctx, "the flip", open("v2"))
		if d.LastSwitch == nil || d.LastSwitch.ID != "u1" {
			t.Errorf("last switch %+v", d.LastSwitch)
		}
		if got := told(d); !slices.ContainsFunc(got, func(s string) bool {
			return strings.HasPrefix(s, "retry attempt 1 at the switch failed: SWITCHING passed its deadline")
		}) {
			t.Errorf("the history contains %q", got)
		}
	})
}

// TestCheckThatPasses: a check that a database did not answer ends the attempt, and not the
// upgrade.
func TestCheckThatPasses(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Checks: checks{seal: func(d upgradestate.Deployment) error {
			if d.Upgrade.Failures == 0 {
				return fmt.Errorf("no primary: %w", switchover.ErrPasses)
			}
			return nil
		}}})
		if d := w.await(ctx, "the end of the first attempt", between); !strings.Contains(d.Upgrade.LastFailure, "no primary") {
			t.Errorf("given up because %q", d.Upgrade.LastFailure)
		}
		if d := w.await(ctx, "the flip", open("v2")); d.LastSwitch == nil || d.LastSwitch.ID != "u1" {
			t.Errorf("last switch %+v", d.LastSwitch)
		}
	})
}

// TestRetriesEnd: as often as the policy allows, with more and more time for clients
// between, and then no more.
func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		configured, policy int
		attempts           int
		pauses             []time.Duration
	}{
		{0, 0, 4, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second}},
		{2, 0, 3, []time.Duration{5 * time.Second, 10 * time.Second}},
		{2, 1, 2, []time.Duration{5 * time.Second}},
		{2, -1, 1, nil},
		{-1, 0, 1, nil},
		{-1, 1, 2, []time.Duration{5 * time.Second}},
	} {
		t.Run(fmt.Sprintf("%d configured, policy %d", tc.configured, tc.policy), func(t *testing.T) {
			t.Parallel()
			kinds := simple
			kinds.inject = map[string]faultstore.Injector{"v1": faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Fence)}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				w.apply(ctx, upgradestate.SetPolicy{Retries: ptr(tc.policy)})
				var pauses []time.Duration
				attempts := 0
				ended := time.Time{}
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Policy: upgradestate.Policy{Retries: tc.configured}})
				was := false
				w.await(ctx, "the end", func(d upgradestate.Deployment) bool {
					is := switching(d)
					if is && !was {
						attempts++
						if !ended.IsZero() {
							pauses = append(pauses, time.Since(ended).Round(time.Second))
						}
					}
					if was && !is {
						ended = time.Now()
					}
					was = is
					return attempts > 0 && d.Upgrade == nil
				})
				if attempts != tc.attempts || !slices.Equal(pauses, tc.pauses) {
					t.Errorf("%d attempts with %v between them, want %d with %v", attempts, pauses, tc.attempts, tc.pauses)
				}
				d := w.get(ctx)
				if !open("v1")(d) {
					t.Errorf("the old version is not written: %+v", d)
				}
			})
		})
	}
}

// TestOperatorsAbortIsFinal, between attempts and during one that ends by itself.
func TestOperatorsAbortIsFinal(t *testing.T) {
	t.Parallel()
	kinds, down := outage()
	down.On()
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		down.Off()
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Checks: checks{seal: func(upgradestate.Deployment) error { down.On(); return nil }}})
		w.await(ctx, "the end of the first attempt", between)
		w.apply(ctx, upgradestate.Abort{Reason: "a person"})
		down.Off()
		quiet(time.Minute)
		if d := w.get(ctx); !open("v1")(d) || d.LastSwitch != nil {
			t.Errorf("it went on after an abort: %+v", d.Upgrade)
		}
	})
}

// TestMaxHold: clients get their writes back before the deadline of the switch.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg    time.Duration
		policy int64
		want   time.Duration
	}{
		"configured":               {2 * time.Second, 0, 2 * time.Second},
		"by policy":                {2 * time.Second, 4000, 4 * time.Second},
		"longer than the deadline": {time.Minute, 0, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds := simple
			kinds.inject = map[string]faultstore.Injector{"v2": faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Fence)}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				w.apply(ctx, upgradestate.SetPolicy{MaxHoldMillis: ptr(tc.policy)})
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Policy: upgradestate.Policy{MaxHoldMillis: tc.cfg.Milliseconds()}})
				w.await(ctx, "the switch", switching)
				start := time.Now()
				d := w.await(ctx, "writes", between)
				if took := time.Since(start); took < tc.want || took > tc.want+100*time.Millisecond {
					t.Errorf("writes were held for %s, want %s", took, tc.want)
				}
				if held := strings.Contains(d.Upgrade.LastFailure, "held for"); held != (tc.want < 10*time.Second) {
					t.Errorf("given up because %q", d.Upgrade.LastFailure)
				}
			})
		})
	}
}

// TestHindrance: no switch begins while something is known that would hold it up, it is
// said what, and what begins meanwhile ends the attempt before anything is sealed.
func TestHindrance(t *testing.T) {
	t.Parallel()
	const build = "the build of index a_1"
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			kind := map[string]string{"v1": "old", "v2": "new"}[version]
			inBubble(t, simple, func(ctx context.Context, w *world) {
				w.db[version].Hinder(kind, build)
				var told []string
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{
					Publish: func(_ context.Context, o *switchover.Readiness) error {
						if o != nil {
							told = o.WaitsFor
						}
						return nil
					},
					Checks: checks{seal: func(d upgradestate.Deployment) error {
						if d.Upgrade.Failures == 0 {
							w.db[version].Hinder(kind, build)
						}
						return nil
					}},
				})
				quiet(time.Minute)
				if d := w.get(ctx); switching(d) || !slices.Contains(told, build) {
					t.Fatalf("state %s, waits for %q", d.Upgrade.State, told)
				}
				w.db[version].Hinder(kind, "")
				d := w.await(ctx, "the end of an attempt", between)
				if !strings.Contains(d.Upgrade.LastFailure, build) {
					t.Errorf("given up because %q", d.Upgrade.LastFailure)
				}
				w.db[version].Hinder(kind, "")
				w.await(ctx, "the flip", open("v2"))
			})
		})
	}
}

// TestFenceThatNeverReturns: whatever hangs of an announced rename, an abort gives writes
// back at once.
func TestFenceThatNeverReturns(t *testing.T) {
	t.Parallel()
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v1": faultstore.On(faultstore.InjectorFunc(func(faultstore.Op) faultstore.Fault {
		return faultstore.Fault{Latency: 24 * time.Hour}
	}), faultstore.Fence)}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Policy: upgradestate.Policy{Retries: -1}})
		w.await(ctx, "the switch", switching)
		start := time.Now()
		d := w.await(ctx, "writes", open("v1"))
		if took := time.Since(start); took > 10*time.Second+100*time.Millisecond {
			t.Errorf("writes were held for %s, the deadline is 10 s", took)
		}
		ns, _ := d.Namespace("v1")
		if k := ns.Kinds[0]; k.Physical != "old.n1" {
			t.Errorf("the kind is at %s", k.Physical)
		}
		// The fence comes after all.
		err := w.db["v1"].Fence(ctx, record.Fence{
			Class: record.FenceUUID, Token: record.Token{Kind: "old", Name: "old.n1", ID: ns.Kinds[0].ID}, To: "old.n2",
		})
		if err == nil {
			t.Error("a fence that was given up is confirmed")
		}
	})
}
