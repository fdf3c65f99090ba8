package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"dbcontroller/config"
	"dbcontroller/switchover"
	"dbcontroller/upgradestate"
)

// TestNeeds: what goes back never waits for a proof, and what has no way back needs none.
func TestNeeds(t *testing.T) {
	t.Parallel()
	dbs := []config.DB{{Version: "v1"}, {Version: "v2"}, {Version: "v3"}}
	oneWay := []config.DB{{Version: "v1", Disabled: true}, {Version: "v2"}}
	for name, tc := range map[string]struct {
		dbs      []config.DB
		current  string
		last     *upgradestate.Switch
		to       string
		snapshot bool
		want     need
		text     string
	}{
		"forward":         {dbs, "v1", nil, "v2", false, needProof, ""},
		"next one":        {dbs, "v2", &upgradestate.Switch{From: "v1", To: "v2"}, "v3", false, needProof, ""},
		"back":            {dbs, "v2", &upgradestate.Switch{From: "v1", To: "v2"}, "v1", false, needNothing, "goes back to v1"},
		"forward again":   {dbs, "v1", &upgradestate.Switch{From: "v2", To: "v1", Back: true}, "v2", false, needProof, ""},
		"to the snapshot": {dbs, "v2", &upgradestate.Switch{From: "v1", To: "v2"}, "v1", true, needNothing, "snapshot of v1; v2 stays"},
		"no way back":     {oneWay, "v1", nil, "v2", false, needRenames, "disabled: there will be no way back to v1 but to the snapshot"},
		"no longer there": {dbs[1:], "v1", nil, "v2", false, needRenames, "disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := App{cfg: config.Config{DBs: tc.dbs}}
			d := upgradestate.Deployment{CurrentVersion: tc.current, LastSwitch: tc.last}
			if got, text := a.needs(d, tc.to, tc.snapshot); got != tc.want || !strings.Contains(text, tc.text) || (text == "") != (tc.text == "") {
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
// which must not run beside it; one that failed does not matter then.
func TestAgainst(t *testing.T) {
	t.Parallel()
	failed := errors.New("no privilege")
	for name, tc := range map[string]struct {
		disabled bool
		prover   *prover
		want     string // empty: nothing
	}{
		"proof runs":               {false, &prover{id: "u1"}, "which runs"},
		"proof of another upgrade": {false, &prover{id: "u0", done: true}, "which runs"},
		"proved":                   {false, &prover{id: "u1", done: true}, ""},
		"not proved":               {false, &prover{id: "u1", err: failed}, "no privilege"},
		"measurement runs":         {true, &prover{id: "u1"}, "which runs"},
		"measured":                 {true, &prover{id: "u1", done: true}, ""},
		"not measured":             {true, &prover{id: "u1", err: failed}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tc.prover
			p.app = &App{cfg: config.Config{DBs: []config.DB{{Version: "v1", Disabled: tc.disabled}, {Version: "v2"}}}}
			d := upgradestate.Deployment{CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u1", TargetVersion: "v2"}}
			err := p.against(d)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestForecastOfAProofThatRuns says what it is about, which is not that of another upgrade.
func TestForecastOfAProofThatRuns(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"u1": "not proved yet: the proof makes scratch collections", "u0": "not proved yet"} {
		p := &prover{id: id, app: &App{cfg: config.Config{DBs: []config.DB{{Version: "v1"}, {Version: "v2"}}}}}
		p.isDoing("makes scratch collections")
		d := upgradestate.Deployment{CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u1", TargetVersion: "v2"}}
		if got := p.Forecast(t.Context(), d).WayBack; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}
