package switchover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// said keeps what was published.
type said struct {
	mu  sync.Mutex
	all []*switchover.Readiness
}

func (s *said) publish(_ context.Context, o *switchover.Readiness) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, o)
	return nil
}

// last is what was published last, and how often something was.
func (s *said) last() (*switchover.Readiness, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return nil, 0
	}
	return s.all[len(s.all)-1], len(s.all)
}

// forecast is a Forecaster that knows all beforehand.
type forecast func() switchover.Forecast

func (f forecast) Forecast(context.Context, upgradestate.Deployment) switchover.Forecast { return f() }

func (w *world) apply(ctx context.Context, ev upgradestate.Event) {
	w.t.Helper()
	_, err := w.admin.Apply(ctx, ev)
	w.check(err)
}

func ptr[T any](v T) *T { return &v }

// waits reports whether an upgrade is ready and waits.
func (w *world) waits(ctx context.Context) bool {
	d := w.get(ctx)
	return upgradestate.AllReady(d) && d.Upgrade.Step == upgradestate.StepNone
}

// TestPolicyDeadline goes before that of the configuration.
func TestPolicyDeadline(t *testing.T) {
	t.Parallel()
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v2": faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Fence)}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		w.apply(ctx, upgradestate.SetPolicy{DeadlineMillis: ptr(int64(2000))})
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Policy: upgradestate.Policy{DeadlineMillis: time.Hour.Milliseconds(), Retries: -1}})
		w.await(ctx, "the switch", switching)
		start := time.Now()
		w.await(ctx, "the abort", func(d upgradestate.Deployment) bool {
			return d.Upgrade == nil || d.Upgrade.Step == upgradestate.StepAbort
		})
		if took := time.Since(start); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("the abort began after %s", took)
		}
		if reason := w.abortReason(); !strings.Contains(reason, "deadline of 2s") {
			t.Errorf("aborted for %q", reason)
		}
	})
}

// TestWindow: no switch begins outside of it, and one does once it opens. A bubble begins
// at midnight UTC.
func TestWindow(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.apply(ctx, upgradestate.SetPace{Window: ptr("02:00-03:00")})
		w.report(ctx, 0)
		s := &said{}
		w.drive(ctx, switchover.Config{Publish: s.publish})
		quiet(time.Hour)
		o, n := s.last()
		if !w.waits(ctx) || o == nil || len(o.WaitsFor) != 1 || !strings.Contains(o.WaitsFor[0], "02:00-03:00 UTC") {
			t.Fatalf("upgrade %+v, readiness %+v", w.get(ctx).Upgrade, o)
		}
		if n > 3 {
			t.Errorf("the same was published %d times", n)
		}
		quiet(59 * time.Minute)
		if !w.waits(ctx) {
			t.Fatal("it switched before the window")
		}
		w.await(ctx, "the flip", open("v2"))
		if now := time.Now().UTC(); now.Hour() != 2 || now.Minute() != 0 {
			t.Errorf("switched at %s", now)
		}
	})
}

// TestMaxPause: a predicted pause that is too long keeps the switch waiting, until it is
// shorter or the limit is raised.
func TestMaxPause(t *testing.T) {
	t.Parallel()
	for name, unblock := range map[string]func(ctx context.Context, w *world, fence *atomic.Int64){
		"limit raised": func(ctx context.Context, w *world, _ *atomic.Int64) {
			w.apply(ctx, upgradestate.SetPolicy{MaxPauseMillis: ptr(int64(1000))})
		},
		"shorter now": func(_ context.Context, _ *world, fence *atomic.Int64) { fence.Store(10) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, simple, func(ctx context.Context, w *world) {
				w.apply(ctx, upgradestate.SetPolicy{MaxPauseMillis: ptr(int64(100))})
				w.report(ctx, 0)
				var fence atomic.Int64
				fence.Store(333)
				s := &said{}
				w.drive(ctx, switchover.Config{Publish: s.publish, Forecaster: forecast(func() switchover.Forecast {
					return switchover.Forecast{Rollback: "proved", Parts: map[string]time.Duration{
						"fence": time.Duration(fence.Load()) * time.Millisecond, "hold": 20 * time.Millisecond,
					}}
				})})
				quiet(time.Minute)
				o, _ := s.last()
				if !w.waits(ctx) || o == nil || len(o.WaitsFor) != 1 || !strings.Contains(o.WaitsFor[0], "360 ms") || !strings.Contains(o.WaitsFor[0], "100 ms") {
					t.Fatalf("upgrade %+v, readiness %+v", w.get(ctx).Upgrade, o)
				}
				if o.Rollback != "proved" || o.PredictedPauseMillis == nil || *o.PredictedPauseMillis != 360 || o.ID != "u1" || o.At == "" {
					t.Errorf("readiness %+v", o)
				}
				unblock(ctx, w, &fence)
				w.await(ctx, "the flip", open("v2"))
			})
		})
	}
}

// TestMaxPauseUnknown: what was not measured is not short.
func TestMaxPauseUnknown(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.apply(ctx, upgradestate.SetPolicy{MaxPauseMillis: ptr(int64(100))})
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{})
		quiet(time.Minute)
		if !w.waits(ctx) {
			t.Error("it switched")
		}
	})
}

// TestReadiness names all that is in the way, each only as long as it is, and is gone with
// the upgrade.
func TestReadiness(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.apply(ctx, upgradestate.SetPolicy{Hold: ptr(true)})
		w.park(func(upgradestate.Deployment) int { return 3 })
		s := &said{}
		var problems atomic.Pointer[[]error]
		problems.Store(&[]error{errors.New("an index is missing"), errors.New("the rollback is not proved")})
		w.drive(ctx, switchover.Config{Publish: s.publish, Checks: manyChecks(func() []error { return *problems.Load() })})
		quiet(10 * time.Second)
		want := func(texts ...string) {
			t.Helper()
			o, _ := s.last()
			if o == nil || len(o.WaitsFor) != len(texts) {
				t.Fatalf("readiness %+v, want %q", o, texts)
			}
			for i, text := range texts {
				if !strings.Contains(o.WaitsFor[i], text) {
					t.Errorf("waits for %q, want %q", o.WaitsFor[i], text)
				}
			}
		}
		want("4 of 4 shards", "'switch'", "3 parked") // the databases are not asked before the shards are there
		w.report(ctx, 0)
		quiet(10 * time.Second)
		want("'switch'", "3 parked", "an index", "the rollback")
		w.park(func(upgradestate.Deployment) int { return 0 })
		problems.Store(&[]error{errors.New("the rollback is not proved")})
		quiet(10 * time.Second)
		want("'switch'", "the rollback")
		w.apply(ctx, upgradestate.AskSwitch{})
		quiet(2 * time.Second)
		want("the rollback")
		if !w.waits(ctx) {
			t.Fatalf("upgrade %+v", w.get(ctx).Upgrade)
		}
		problems.Store(&[]error{})
		w.await(ctx, "the flip", open("v2"))
		quiet(time.Second)
		if o, _ := s.last(); o != nil {
			t.Errorf("readiness %+v after the flip", o)
		}
	})
}

// TestWaitsWithoutAnUpgrade: operators see what controllers wait for before they begin an upgrade.
func TestWaitsWithoutAnUpgrade(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.apply(ctx, upgradestate.Abort{ID: "u1"})
		var waits atomic.Pointer[[]upgradestate.Blocker]
		waits.Store(&[]upgradestate.Blocker{})
		s := &said{}
		w.drive(ctx, switchover.Config{Publish: s.publish, Waits: func() []upgradestate.Blocker { return *waits.Load() }})
		for _, want := range []int{0, 1, 0} {
			reasons := slices.Repeat([]upgradestate.Blocker{{Code: upgradestate.BlockIdentity, Text: "a moved collection"}}, want)
			waits.Store(&reasons) // complete: the driver reads it from now on
			quiet(10 * time.Second)
			if o, _ := s.last(); (o != nil) != (want > 0) || o != nil && (o.ID != "" || len(o.Blockers) != want) {
				t.Errorf("readiness %+v, want %d reasons", o, want)
			}
		}
	})
}

// closed lets nothing take the name that an application knows.
type closed struct{ open *atomic.Bool }

func (c closed) Inject(op faultstore.Op) faultstore.Fault {
	if c.open.Load() || op.To == "" || len(op.Kinds) == 0 || op.To != op.Kinds[0] {
		return faultstore.Fault{}
	}
	return faultstore.Down()
}

// TestTroubleAfterTheFlip: writes wait for what is left to do then, so it must not be in
// the log alone.
func TestTroubleAfterTheFlip(t *testing.T) {
	t.Parallel()
	var released atomic.Bool
	kinds := fixed(record.FenceView)
	kinds.inject = map[string]faultstore.Injector{"v2": closed{&released}}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		s := &said{}
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{Publish: s.publish, Policy: upgradestate.Policy{DeadlineMillis: 60_000}})
		w.await(ctx, "the flip", func(d upgradestate.Deployment) bool { return d.CurrentVersion == "v2" })
		quiet(10 * time.Second)
		o, n := s.last()
		if o == nil || o.ID != "" || len(o.WaitsFor) != 1 || !strings.Contains(o.WaitsFor[0], "retried") {
			t.Fatalf("readiness %+v", o)
		}
		quiet(10 * time.Second)
		if _, later := s.last(); later != n {
			t.Errorf("the same was published %d times", later-n+1)
		}
		released.Store(true)
		w.await(ctx, "writes", open("v2"))
		quiet(time.Second)
		if o, _ := s.last(); o != nil {
			t.Errorf("readiness %+v when all is done", o)
		}
	})
}

// manyChecks are checks that may find several things.
type manyChecks func() []error

func (c manyChecks) BeforeSwitch(context.Context, upgradestate.Deployment) []error { return c() }

func (manyChecks) BeforeSeal(context.Context, upgradestate.Deployment) error { return nil }

// TestNews wakes the driver up.
func TestNews(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		var fine atomic.Bool
		news := make(chan struct{}, 1)
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{News: news, Checks: manyChecks(func() []error {
			if fine.Load() {
				return nil
			}
			return []error{errors.New("a proof runs")}
		})})
		quiet(10*time.Second + 300*time.Millisecond)
		fine.Store(true)
		start := time.Now()
		news <- struct{}{}
		w.await(ctx, "the switch", func(d upgradestate.Deployment) bool { return d.Upgrade == nil || switching(d) })
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("noticed after %s", took)
		}
	})
}

// TestReadinessIsNotNeeded: a store that refuses it keeps no switch from happening. That is
// worth a warning, but not where there is nothing yet to publish it under.
func TestReadinessIsNotNeeded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err   error
		warns bool
	}{
		"refused": {errors.New("no room"), true},
		"not yet": {switchover.ErrNotYet, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, simple, func(ctx context.Context, w *world) {
				core, logged := observer.New(zap.WarnLevel)
				w.log = zap.New(core)
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Publish: func(context.Context, *switchover.Readiness) error { return tc.err }})
				w.await(ctx, "the flip", open("v2"))
				if n := logged.FilterMessage("cannot publish the readiness").Len(); (n > 0) != tc.warns {
					t.Errorf("%d warnings", n)
				}
			})
		})
	}
}

// TestParkedAndTheSnapshot: who goes back to the snapshot leaves everything behind, and what
// is parked with it.
func TestParkedAndTheSnapshot(t *testing.T) {
	t.Parallel()
	inBubble(t, simple, func(ctx context.Context, w *world) {
		w.report(ctx, 0)
		w.drive(ctx, switchover.Config{})
		w.await(ctx, "the flip", open("v2"))
		w.park(func(upgradestate.Deployment) int { return 3 })
		w.apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h"}})
		w.apply(ctx, upgradestate.Begin{ID: "u2", TargetVersion: "v1", Snapshot: true})
		w.await(ctx, "the rollback", open("v1"))
	})
}

func TestPredict(t *testing.T) {
	t.Parallel()
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	for i, tc := range []struct {
		parts map[string]time.Duration
		last  map[string]int64
		want  time.Duration
		ok    bool
	}{
		{nil, nil, 0, false},
		{map[string]time.Duration{"fence": ms(12), "hold": ms(3)}, nil, ms(20), true},
		{nil, map[string]int64{"fence": 30, "drain": 5}, ms(40), true},
		{map[string]time.Duration{"fence": ms(12), "drain": ms(50), "restart": ms(8)}, map[string]int64{"fence": 30, "drain": 5, "hold": 2}, ms(90), true},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			var last *upgradestate.Switch
			if tc.last != nil {
				last = &upgradestate.Switch{Millis: tc.last}
			}
			if got, ok := switchover.Predict(tc.parts, last); got != tc.want || ok != tc.ok {
				t.Errorf("%s, %t; want %s, %t", got, ok, tc.want, tc.ok)
			}
			var sum time.Duration
			for part, d := range switchover.PredictParts(tc.parts, last) {
				if sum += d; d < tc.parts[part] || d < ms(tc.last[part]) {
					t.Errorf("%s: %s; measured were %s, the latest switch had %d ms", part, d, tc.parts[part], tc.last[part])
				}
			}
			if sum > tc.want || tc.want-sum >= ms(10) {
				t.Errorf("the parts add up to %s, and %s are predicted", sum, tc.want)
			}
		})
	}
}
