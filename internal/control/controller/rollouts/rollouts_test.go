package rollouts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// acts begins and aborts without further checks. before runs between the reading and the act.
type acts struct {
	w      deploymenttest.World
	before func()
}

func (a acts) BeginFor(ctx context.Context, id, target, by string, conditions ...coord.Condition) error {
	a.before()
	_, err := a.w.Store.Apply(deployment.AskedBy(ctx, by), upgradestate.Begin{ID: id, TargetVersion: target}, conditions...)
	return err
}

func (a acts) AbortFor(ctx context.Context, id, reason, by string, conditions ...coord.Condition) error {
	a.before()
	_, err := a.w.Store.Apply(deployment.AskedBy(ctx, by), upgradestate.Abort{ID: id, Reason: reason}, conditions...)
	return err
}

// ordered returns a runner whose deployment has the order to upgrade.
func ordered(t *testing.T) (*Runner, deploymenttest.World, func(func())) {
	t.Helper()
	w := deploymenttest.New(t).WithVersions(t)
	before := func() {}
	r := New(Config{
		ID: "c", Coord: w.Coord, Store: w.Store, Rollouts: w.Store.Rollouts(), Log: zap.NewNop(),
		Acts: acts{w, func() { before() }},
	})
	policy := rollout.Policy{HoldMillis: 1, GateLimitMillis: 1000, OnFailure: rollout.RollBackToo}
	ro := rollout.New("r", "r-1", "v2", [][]string{{deploymenttest.Name}}, policy, "a test", time.Now())
	ro, err := r.Rollouts.Store(t.Context(), ro, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.advance(t.Context(), ro, newClock())
	return r, w, func(f func()) { before = f }
}

func upgrade(t *testing.T, w deploymenttest.World) string {
	t.Helper()
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Upgrade == nil {
		return ""
	}
	return d.Upgrade.ID
}

// TestNothingBeginsAfterStop: whatever changes between the reading and the act keeps the upgrade from
// beginning.
func TestNothingBeginsAfterStop(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(t *testing.T, r *Runner, w deploymenttest.World)
		want   string
	}{
		"nothing": {func(*testing.T, *Runner, deploymenttest.World) {}, "r-1-0-0-1"},
		"stop": {func(t *testing.T, r *Runner, _ deploymenttest.World) {
			t.Helper()
			change(t, r, rollout.Stop(""))
		}, ""},
		"pause": {func(t *testing.T, r *Runner, _ deploymenttest.World) {
			t.Helper()
			change(t, r, rollout.Pause(""))
		}, ""},
		"another upgrade, which ended": {func(t *testing.T, _ *Runner, w deploymenttest.World) {
			t.Helper()
			w.Begin(t)
			w.Apply(t, upgradestate.Abort{ID: "u1", Reason: "a test"})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w, before := ordered(t)
			before(func() { tc.change(t, r, w) })
			r.act(t.Context(), "r")
			if got := upgrade(t, w); got != tc.want {
				t.Errorf("upgrade %q runs, want %q", got, tc.want)
			}
		})
	}
}

func change(t *testing.T, r *Runner, do rollout.Change) {
	t.Helper()
	_, err := r.Rollouts.Change(t.Context(), "r", func(ro rollout.Rollout) (rollout.Rollout, bool, error) {
		next, _, err := do(ro, "a test", time.Now())
		return next, true, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefusedBeginIsShown: the reason why an upgrade cannot begin is in the rollout.
func TestRefusedBeginIsShown(t *testing.T) {
	t.Parallel()
	r, w, before := ordered(t)
	w.Apply(t, upgradestate.WithdrawAvailable{TargetVersion: "v2"})
	before(func() {})
	r.act(t.Context(), "r")
	ro, err := r.Rollouts.Get(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if item, _, _ := ro.Item(deploymenttest.Name); !strings.Contains(item.Detail, "no controller offers an upgrade to v2 yet") {
		t.Errorf("the rollout shows %q", item.Detail)
	}
}

// TestRunningUpgradeShowsWhatItWaitsFor: an operator who holds an upgrade of a rollout, or another
// reason of the deployment's driver, is in what the rollout waits for.
func TestRunningUpgradeShowsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	r, w, _ := ordered(t)
	w.Apply(t, upgradestate.Begin{ID: "r-1-0-0-1", TargetVersion: "v2", TransformHash: "h1"})
	w.Apply(t, upgradestate.Report{ID: "r-1-0-0-1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{0, 1, 2, 3}})
	waits := func(want string) {
		t.Helper()
		ro, err := r.Rollouts.Get(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if ro, _ = r.advance(t.Context(), ro, newClock()); ro.Waits != deploymenttest.Name+": "+want {
			t.Errorf("it waits for %q, want %q", ro.Waits, want)
		}
	}
	waits("its upgrade")
	lease, err := w.Coord.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // a test
	err = w.Store.PublishReadiness(t.Context(), &switchover.Readiness{ID: "r-1-0-0-1", Blockers: []upgradestate.Blocker{{Code: upgradestate.BlockShards, Text: "3 shards"}, {Code: upgradestate.BlockUncoded, Text: "a disk"}}}, lease.ID())
	if err != nil {
		t.Fatal(err)
	}
	waits("its upgrade, which waits for a disk")
	hold := true
	w.Apply(t, upgradestate.SetPolicy{Hold: &hold})
	waits("its upgrade, which waits for 'switch': this upgrade holds at ready")
}

// TestNoUpgradeWithoutAWayBack: a deployment that could not roll back begins only in a rollout that
// does not need it.
func TestNoUpgradeWithoutAWayBack(t *testing.T) {
	t.Parallel()
	for policy, want := range map[rollout.OnFailure]string{rollout.RollBackToo: "", rollout.StopOnly: "r-1-0-0-1"} {
		r, w, _ := ordered(t)
		r.NoWayBack = func(version string) string { return version + " is disabled" }
		change(t, r, func(ro rollout.Rollout, _ string, _ time.Time) (rollout.Rollout, []string, error) {
			ro.Policy.OnFailure = policy
			return ro, []string{""}, nil
		})
		r.act(t.Context(), "r")
		ro, err := r.Rollouts.Get(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		item, _, _ := ro.Item(deploymenttest.Name)
		if got := upgrade(t, w); got != want || strings.Contains(item.Detail, "after a switch to v2 it could not roll back: v1 is disabled") != (want == "") {
			t.Errorf("on failure %s: upgrade %q runs, and it shows %q", policy, got, item.Detail)
		}
	}
}

// TestAgainst: what a gate finds in the state of a deployment.
func TestAgainst(t *testing.T) {
	t.Parallel()
	lag := func(ms int64) *int64 { return &ms }
	fine := func() deployment.State {
		return deployment.State{Controllers: []string{"c"}, Record: upgradestate.Deployment{
			CurrentVersion: "v2", Epoch: 2, RingSize: 1, LastSwitch: &upgradestate.Switch{From: "v1", To: "v2"},
			Namespaces: []upgradestate.Namespace{{Version: "v1", Kinds: []upgradestate.Kind{{Kind: "a"}}}, {Version: "v2", Kinds: []upgradestate.Kind{{Kind: "a"}}}},
			Available:  []upgradestate.Available{{TargetVersion: "v1", TransformHash: "h", Precopied: true}},
		}, Progress: []syncer.Progress{{Epoch: 2, LagMillis: lag(0)}}}
	}
	for want, break1 := range map[string]func(*deployment.State){
		"":                                func(*deployment.State) {},
		"no controller runs":              func(s *deployment.State) { s.Controllers = nil },
		"2 parked records block the way":  func(s *deployment.State) { s.Back.Blocking = 2 },
		"the switch is not complete":      func(s *deployment.State) { s.Record.Namespaces[1].Kinds[0].Pending = &upgradestate.Pending{} },
		"1 breaches of fences":            func(s *deployment.State) { s.Record.Breaches = []upgradestate.Breach{{Version: "v1"}} },
		"a value in etcd cannot be read":  func(s *deployment.State) { s.Unreadable = []string{"k: corrupt"} },
		"shard 0 lags 900 ms":             func(s *deployment.State) { s.Progress[0].LagMillis = lag(900) },
		"the lag of 1 shards is not know": func(s *deployment.State) { s.Progress[0].LagMillis = nil },
		"the lag of 1 shards is not":      func(s *deployment.State) { s.Progress[0].Epoch = 1 },
	} {
		s := fine()
		break1(&s)
		if got := against(s, rollout.Policy{MaxLagMillis: 500}); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestChecksRun: a check passes with exit status 0, and with nothing else.
func TestChecksRun(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	r := New(Config{ID: "c", Log: zap.NewNop(), Checks: map[string]Check{
		"passes": Command([]string{"/bin/sh", "-c", `test "$DBCONTROLLER_ROLLOUT/$DBCONTROLLER_WAVE/$DBCONTROLLER_DEPLOYMENTS/$DBCONTROLLER_TARGET_VERSION" = "r/1/a b/v2" && touch ` + mark}, time.Minute),
		"reads":  Command([]string{"/bin/sh", "-c", `test "$(cat | tr '\n' ,)" = a,b,`}, time.Minute),
		"fails":  Command([]string{"/bin/sh", "-c", "exit 3"}, time.Minute),
		"hangs":  {time.Millisecond, func(ctx context.Context, _ []string, _ []byte) error { <-ctx.Done(); return errors.New("killed") }},
	}})
	ro := rollout.New("r", "r-1", "v2", [][]string{{"a", "b"}}, rollout.Policy{Checks: []string{"passes", "reads", "fails", "hangs", "missing"}}, "a test", time.Now())
	if got := r.check(t.Context(), ro); got != nil {
		t.Errorf("outside of a gate: %v", got)
	}
	ro.Step = rollout.StepGate
	want := map[string]string{"passes": "", "reads": "", "fails": "it ends with exit status 3", "hangs": "no answer within 1ms", "missing": "controller c has no such check in its configuration"}
	if got := r.check(t.Context(), ro); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestChecksOfALargeWave: a program starts, and gets all names, where they are too long for its
// environment. One that reads nothing passes as well.
func TestChecksOfALargeWave(t *testing.T) {
	t.Parallel()
	names := make([]string, rollout.MaxDeployments)
	for i := range names {
		names[i] = fmt.Sprintf("services/%s/deployments/d%03d", strings.Repeat("s", 150), i)
	}
	r := New(Config{Log: zap.NewNop(), Checks: map[string]Check{
		"counts": Command([]string{"/bin/sh", "-c", `test -z "${DBCONTROLLER_DEPLOYMENTS+x}" && test "$(cat | wc -l)" -eq 1000`}, time.Minute),
		"reads":  Command([]string{"/bin/sh", "-c", "exit 0"}, time.Minute),
	}})
	ro := rollout.New("r", "r-1", "v2", [][]string{names}, rollout.Policy{Checks: []string{"counts", "reads"}}, "a test", time.Now())
	ro.Step = rollout.StepGate
	if got := r.check(t.Context(), ro); got["counts"] != "" || got["reads"] != "" {
		t.Errorf("%q", got)
	}
}
