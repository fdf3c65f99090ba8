package preflight

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// TestNeeds: what goes back never waits for a proof, and what has no rollback needs none.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kept     bool // the current version
		current  string
		last     *upgradestate.Switch
		to       string
		snapshot bool
		want     need
		text     string
	}{
		"forward":         {true, "v1", nil, "v2", false, needProof, ""},
		"next one":        {true, "v2", &upgradestate.Switch{From: "v1", To: "v2"}, "v3", false, needProof, ""},
		"back":            {true, "v2", &upgradestate.Switch{From: "v1", To: "v2"}, "v1", false, needNothing, "returns to v1"},
		"forward again":   {true, "v1", &upgradestate.Switch{From: "v2", To: "v1", Back: true}, "v2", false, needProof, ""},
		"to the snapshot": {true, "v2", &upgradestate.Switch{From: "v1", To: "v2"}, "v1", true, needNothing, "snapshot of v1; v2 stays"},
		"no rollback":     {false, "v1", nil, "v2", false, needRenames, "disabled: the only rollback to v1 will be to the snapshot"},
		"no longer there": {false, "v1", nil, "v2", false, needRenames, "disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proofs := Proofs{Kept: func(v string) bool { return v == tc.current && tc.kept }}
			d := upgradestate.Deployment{CurrentVersion: tc.current, LastSwitch: tc.last}
			if got, text := proofs.needs(d, tc.to, tc.snapshot); got != tc.want || !strings.Contains(text, tc.text) || (text == "") != (tc.text == "") {
				t.Errorf("%d, %q; want %d, %q", got, text, tc.want, tc.text)
			}
		})
	}
}

// TestMeasuredParts have the names of those of a switch, so that the two are compared.
func TestMeasuredParts(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	parts := proved{fence: 20 * ms, sealTarget: 10 * ms, last: 10 * ms, write: 2 * ms}.parts(ms)
	last := &upgradestate.Switch{Millis: map[string]int64{"hold": 1, "fence": 1, "drain": 1, "flip": 1}}
	if total, _ := switchover.Predict(parts, nil); total != 60*ms { // 3 + 21 + 4 + 23 and rounded up
		t.Errorf("%s in all", total)
	}
	for name := range last.Millis {
		if parts[name] <= 0 {
			t.Errorf("nothing is known of %s", name)
		}
	}
}

// TestAgainst: a switch waits for its proof, and where it needs none, for the measurement,
// which must not run with it; one that failed does not matter then.
func TestAgainst(t *testing.T) {
	t.Parallel()
	failed := errors.New("no privilege")
	for name, tc := range map[string]struct {
		disabled bool
		prover   *Prover
		want     string // empty: nothing
	}{
		"proof runs":               {false, &Prover{id: "u1"}, "the running "},
		"proof of another upgrade": {false, &Prover{id: "u0", done: true}, "the running "},
		"proved":                   {false, &Prover{id: "u1", done: true}, ""},
		"not proved":               {false, &Prover{id: "u1", err: failed}, "no privilege"},
		"measurement runs":         {true, &Prover{id: "u1"}, "the running "},
		"measured":                 {true, &Prover{id: "u1", done: true}, ""},
		"not measured":             {true, &Prover{id: "u1", err: failed}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tc.prover
			p.Kept = func(string) bool { return !tc.disabled }
			d := upgradestate.Deployment{CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u1", TargetVersion: "v2"}}
			err := p.blocks(d)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestForecastOfAProofThatRuns says what it is about, which is not that of another upgrade.
func TestForecastOfAProofThatRuns(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"u1": "not proved yet: the proof creates scratch collections", "u0": "not proved yet"} {
		p := &Prover{id: id}
		p.Kept = func(string) bool { return true }
		p.isDoing("creates scratch collections")
		d := upgradestate.Deployment{CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u1", TargetVersion: "v2"}}
		if got := p.Forecast(t.Context(), d).Rollback; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// TestForecastInOneWord is what metrics show of the proof.
func TestForecastInOneWord(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prover   *Prover
		disabled bool
		snapshot bool
		want     switchover.Proof
	}{
		"runs":       {&Prover{id: "u1", doing: "copies"}, false, false, switchover.ProofRunning},
		"not begun":  {&Prover{id: "u0"}, false, false, switchover.ProofRunning},
		"failed":     {&Prover{id: "u1", err: errors.New("no")}, false, false, switchover.ProofFailed},
		"disabled":   {&Prover{id: "u1"}, true, false, switchover.ProofDisabled},
		"a snapshot": {&Prover{id: "u1"}, false, true, switchover.ProofNotAsked},
	} {
		tc.prover.Kept = func(string) bool { return !tc.disabled }
		d := upgradestate.Deployment{CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u1", TargetVersion: "v2", Snapshot: tc.snapshot}}
		if got := tc.prover.Forecast(t.Context(), d).Proof; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestProofIsMadeAgain: a proof that failed is made again, also where the shards were not ready
// when its time came.
func TestProofIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keep := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
		registry := transform.NewRegistry("things")
		// Groups by content: such a proof needs what the shards have applied.
		err := registry.Add("v1", "v2", transform.Spec{
			Name: "things", Revision: "1", Up: keep, Down: keep,
			Old: transform.Side{Kinds: []transform.GroupedKind{{
				KindSpec: record.KindSpec{Name: "things"}, Content: func(record.Record) (string, error) { return "one", nil },
			}}},
			New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "news"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		store := deployment.New(memcoord.New(), "services/a/deployments/b", deployment.Config{})
		if _, err := store.Create(t.Context(), "v1", 1); err != nil {
			t.Fatal(err)
		}
		apply := func(ev upgradestate.Event) {
			t.Helper()
			if _, err := store.Apply(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
		}
		for _, v := range []string{"v1", "v2"} {
			apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: v, Location: "mem:" + v,
				Kinds: []upgradestate.Kind{{Kind: "things", Physical: "things.n1", ID: v}}}})
		}
		apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h"}})
		apply(upgradestate.Begin{ID: "u", TargetVersion: "v2", TransformHash: "h"})
		p := NewProver(ProverParts{
			Proofs:      Proofs{Registry: registry, Kept: func(string) bool { return true }},
			Deployments: store, Log: zap.NewNop(),
		})
		attempts := 0
		p.attempt = func(context.Context, upgradestate.Deployment, need) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			attempts++
			p.err = errors.New("the database is away")
			return p.err
		}
		made := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return attempts
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		ready := upgradestate.Report{ID: "u", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{0}}
		time.Sleep(time.Second)
		if n := made(); n != 0 {
			t.Errorf("%d attempts before the shards were ready", n)
		}
		apply(ready)
		time.Sleep(time.Second)
		if n := made(); n != 1 {
			t.Fatalf("%d attempts when the shards were ready", n)
		}
		apply(upgradestate.Withdraw{ID: "u", Shards: []int{0}})
		time.Sleep(2 * proveAgainMost) // of the bubble; its time comes and passes
		apply(ready)
		time.Sleep(time.Second)
		if n := made(); n != 2 {
			t.Errorf("%d attempts after the shards were ready again", n)
		}
		cancel()
		<-done
	})
}

// copiers is a deployment whose shards say what they do.
type copiers struct {
	ProverDeployment
	states func() []syncer.Progress
}

func (c copiers) Progress(context.Context) ([]syncer.Progress, error) { return c.states(), nil }

// late is a database that answers late.
type late struct {
	Space
	by time.Duration
}

func (l late) Position(context.Context) (record.Position, error) {
	time.Sleep(l.by) // of the bubble
	return record.Position{}, nil
}

// TestProofWaitsForTheCopy, since its stream would have to pass all that is copied meanwhile, but not
// for days, and not if a database is far away.
func TestProofWaitsForTheCopy(t *testing.T) {
	t.Parallel()
	begun := upgradestate.Deployment{
		RingSize: 2, CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u", TargetVersion: "v2", State: upgradestate.InitialSyncing},
	}
	for name, tc := range map[string]struct {
		states []string
		since  time.Duration
		far    time.Duration // of the target
		waits  bool
	}{
		"all copy":             {[]string{"copying", "copying"}, time.Second, 0, true},
		"one copies":           {[]string{"comparing", "copying"}, time.Second, 0, true},
		"one has said nothing": {[]string{"comparing"}, time.Second, 0, true},
		"all are compared":     {[]string{"comparing", "following"}, 0, 0, false},
		"for days":             {[]string{"copying", "copying"}, copyPatience, 0, false},
		"almost far":           {[]string{"copying", "copying"}, time.Second, 20 * time.Millisecond, true},
		"far":                  {[]string{"copying", "copying"}, time.Second, 21 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &Prover{id: "u", begun: time.Now().Add(-tc.since)}
				p.Deployments = copiers{states: func() (ps []syncer.Progress) {
					for n, state := range tc.states {
						ps = append(ps, syncer.Progress{Shard: n, State: state})
					}
					return ps
				}}
				p.Quiet = func(version string) Space {
					if version == "v2" {
						return late{by: tc.far}
					}
					return late{}
				}
				if wait, err := p.duringCopy(t.Context(), begun); (wait > 0) != tc.waits || err != nil {
					t.Errorf("waits %v, %v", wait, err)
				}
			})
		})
	}
}
