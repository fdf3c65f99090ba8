package rollout_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/rollout"
)

var start = time.Unix(1e9, 0).UTC()

const a, b = "services/s/deployments/a", "services/s/deployments/b"

func policy() rollout.Policy {
	return rollout.Policy{PauseMillis: 1000, HoldMillis: 5000, GateLimitMillis: 60_000, OnFailure: rollout.StopOnly}
}

func begun(p rollout.Policy) rollout.Rollout {
	return rollout.New("r", "r-1", "v2", [][]string{{a}, {b}}, p, "a test", start)
}

// at is what a driver sees, seconds after the start.
func at(seconds int, ds map[string]rollout.Deployment) rollout.Seen {
	observed := time.Duration(seconds) * time.Second
	return rollout.Seen{Now: start, Driver: "d", Clock: observed, Deployments: ds}
}

func one(d rollout.Deployment) map[string]rollout.Deployment {
	return map[string]rollout.Deployment{a: d, b: {CurrentVersion: "v1"}}
}

// switchedTo is a deployment that an order of the first wave has switched.
func switchedTo(against string) map[string]rollout.Deployment {
	return one(rollout.Deployment{CurrentVersion: "v2", LastUpgradeID: "r-1-0-0-1", LastSwitchID: "r-1-0-0-1", Against: against})
}

// inGate returns a rollout whose first wave has switched after one second.
func inGate(t *testing.T, p rollout.Policy) rollout.Rollout {
	t.Helper()
	r := rollout.Advance(begun(p), at(0, one(rollout.Deployment{CurrentVersion: "v1"})))
	r = rollout.Advance(r, at(1, switchedTo("")))
	if r.Step != rollout.StepGate {
		t.Fatalf("it is in step %s: %s", r.Step, r.Waits)
	}
	return r
}

// TestGateHolds: the conditions must hold for the hold time, and under the eyes of one driver.
func TestGateHolds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		seen  []rollout.Seen
		state rollout.State
		step  rollout.Step
		says  string
	}{
		"too short":       {[]rollout.Seen{at(2, switchedTo("")), at(6, switchedTo(""))}, rollout.Running, rollout.StepGate, "its conditions hold"},
		"long enough":     {[]rollout.Seen{at(2, switchedTo("")), at(7, switchedTo(""))}, rollout.Running, rollout.StepPause, ""},
		"broken between":  {[]rollout.Seen{at(2, switchedTo("")), at(4, switchedTo("late")), at(8, switchedTo(""))}, rollout.Running, rollout.StepGate, "its conditions hold"},
		"unread between":  {[]rollout.Seen{at(2, switchedTo("")), at(4, one(rollout.Deployment{Unread: "etcd does not answer"})), at(8, switchedTo(""))}, rollout.Running, rollout.StepGate, "its conditions hold"},
		"unread":          {[]rollout.Seen{at(2, one(rollout.Deployment{Unread: "etcd does not answer"}))}, rollout.Running, rollout.StepGate, a + ": etcd does not answer"},
		"another driver":  {[]rollout.Seen{at(2, switchedTo("")), {Driver: "e", Clock: time.Hour, Deployments: switchedTo("")}}, rollout.Running, rollout.StepGate, "its conditions hold"},
		"never":           {[]rollout.Seen{at(2, switchedTo("parked")), at(61, switchedTo("parked"))}, rollout.Stopped, rollout.StepGate, "has not passed after 1m0s: " + a + ": parked"},
		"never read":      {[]rollout.Seen{at(61, one(rollout.Deployment{Unread: "gone"}))}, rollout.Stopped, rollout.StepGate, "has not passed after 1m0s: " + a + ": gone"},
		"somebody else":   {[]rollout.Seen{at(2, one(rollout.Deployment{CurrentVersion: "v1", LastUpgradeID: "u-1", LastSwitchID: "u-1"}))}, rollout.Stopped, rollout.StepGate, "somebody else has begun u-1"},
		"somebody begins": {[]rollout.Seen{at(2, one(rollout.Deployment{CurrentVersion: "v2", LastUpgradeID: "u-1", UpgradeID: "u-1", LastSwitchID: "r-1-0-0-1"}))}, rollout.Stopped, rollout.StepGate, "upgrade u-1 runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inGate(t, policy())
			for _, s := range tc.seen {
				r = rollout.Advance(r, s)
			}
			if r.State != tc.state || r.Step != tc.step || !strings.Contains(r.Reason+r.Waits, tc.says) {
				t.Errorf("%s, %s: %q %q, want %s, %s: %q", r.State, r.Step, r.Reason, r.Waits, tc.state, tc.step, tc.says)
			}
		})
	}
}

// TestOnlyObservedTimeCounts: a limit adds up what drivers have observed. A wall clock that jumps does
// not count, and neither does the time between two drivers.
func TestOnlyObservedTimeCounts(t *testing.T) {
	t.Parallel()
	bad := switchedTo("parked")
	r := inGate(t, policy())
	look := func(driver string, clock time.Duration, now time.Time) rollout.State {
		r = rollout.Advance(r, rollout.Seen{Now: now, Driver: driver, Clock: clock, Deployments: bad})
		return r.State
	}
	// The gate began when d had observed for 1 s.
	for s := 2; s <= 41; s++ {
		if got := look("d", time.Duration(s)*time.Second, start.Add(time.Duration(s)*24*time.Hour)); got != rollout.Running {
			t.Fatalf("after %d s, and %d days by the wall clock, it is %s", s-1, s, got)
		}
	}
	// The next driver has observed another rollout before. What d has not stored, at most 5 s, is lost.
	if got := look("e", time.Hour, start.Add(-time.Hour)); got != rollout.Running {
		t.Fatalf("when another driver begins it is %s", got)
	}
	if got := look("e", time.Hour+19*time.Second, start); got != rollout.Running {
		t.Errorf("after 59 s it is %s", got)
	}
	if got := look("e", time.Hour+26*time.Second, start); got != rollout.Stopped {
		t.Errorf("after 66 s it is %s, %d ms", got, r.StepMillis)
	}
}

// TestFewWritesWhileItWaits: a long pause is not one write for each look.
func TestFewWritesWhileItWaits(t *testing.T) {
	t.Parallel()
	p := policy()
	p.PauseMillis = (2 * time.Hour).Milliseconds()
	r := rollout.Advance(rollout.Advance(inGate(t, p), at(2, switchedTo(""))), at(7, switchedTo("")))
	writes, s := 0, 7
	for ; r.Step == rollout.StepPause && s < 10_000; s += 2 {
		next := rollout.Advance(r, at(s, nil))
		if !reflect.DeepEqual(next, r) {
			writes++
		}
		r = next
	}
	if r.Wave != 1 || s < 7207 || writes > 200 {
		t.Errorf("wave %d begins after %d s and %d writes", r.Wave+1, s-7, writes)
	}
}

// TestChecks: a check that did not run has not passed.
func TestChecks(t *testing.T) {
	t.Parallel()
	p := policy()
	p.Checks, p.HoldMillis = []string{"errors", "latency"}, 0
	for name, tc := range map[string]struct {
		checks map[string]string
		step   rollout.Step
		says   string
	}{
		"none ran":   {nil, rollout.StepGate, "check errors: it has not run yet; check latency"},
		"one ran":    {map[string]string{"errors": ""}, rollout.StepGate, "check latency: it has not run yet"},
		"one failed": {map[string]string{"errors": "", "latency": "exit status 1"}, rollout.StepGate, "check latency: exit status 1"},
		"all passed": {map[string]string{"errors": "", "latency": ""}, rollout.StepPause, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := at(2, switchedTo(""))
			s.Checks = tc.checks
			if r := rollout.Advance(inGate(t, p), s); r.Step != tc.step || !strings.Contains(r.Waits, tc.says) {
				t.Errorf("step %s, %q, want %s, %q", r.Step, r.Waits, tc.step, tc.says)
			}
		})
	}
}

// TestWaveLimit: a wave fails if its upgrades do not end in time, and an upgrade of somebody else is
// only waited for.
func TestWaveLimit(t *testing.T) {
	t.Parallel()
	p := policy()
	p.WaveLimitMillis = 10_000
	busy := one(rollout.Deployment{CurrentVersion: "v1", UpgradeID: "u-1", LastUpgradeID: "u-1"})
	r := rollout.Advance(begun(p), at(1, busy))
	if item, _, _ := r.Item(a); item.Order != "" || r.State != rollout.Running || !strings.Contains(r.Waits, "u-1, which does not belong to the rollout") {
		t.Errorf("a busy deployment: order %q, %s, %q", item.Order, r.State, r.Waits)
	}
	if r = rollout.Advance(r, at(11, busy)); r.State != rollout.Stopped || !strings.Contains(r.Reason, "have not ended after 10s") {
		t.Errorf("after its limit: %s, %q", r.State, r.Reason)
	}
}

// TestAlreadyThere: a deployment that serves the target gets no order, and a rollback leaves it.
func TestAlreadyThere(t *testing.T) {
	t.Parallel()
	there := one(rollout.Deployment{CurrentVersion: "v2", LastUpgradeID: "u-1", LastSwitchID: "u-1"})
	r := rollout.Advance(begun(policy()), at(1, there))
	if item, _, _ := r.Item(a); item.Result != rollout.WasThere || r.Step != rollout.StepGate {
		t.Fatalf("it is in step %s with %+v", r.Step, item)
	}
	if _, does, err := rollout.RollBack(0, "")(r, "a test", start); err != nil || len(does) > 0 {
		t.Errorf("a rollback does %q, %v", does, err)
	}
	r = rollout.Advance(rollout.Advance(r, at(2, there)), at(7, there))
	if r.Step != rollout.StepPause {
		t.Errorf("its gate waits for %q", r.Waits)
	}
	if got := rollout.Next(r, a, there[a]); got != (rollout.Action{}) {
		t.Errorf("an action %+v", got)
	}
}

// TestNext: what a controller does with its deployment.
func TestNext(t *testing.T) {
	t.Parallel()
	ordered := rollout.Advance(begun(policy()), at(0, one(rollout.Deployment{CurrentVersion: "v1", LastUpgradeID: "u-0", LastSwitchID: "u-0"})))
	apply := func(r rollout.Rollout, c rollout.Change) rollout.Rollout {
		next, _, err := c(r, "a test", start)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	before := rollout.Deployment{CurrentVersion: "v1", LastUpgradeID: "u-0", LastSwitchID: "u-0"}
	running := rollout.Deployment{CurrentVersion: "v1", LastUpgradeID: "r-1-0-0-1", UpgradeID: "r-1-0-0-1", LastSwitchID: "u-0"}
	for name, tc := range map[string]struct {
		r    rollout.Rollout
		d    rollout.Deployment
		want rollout.Act
	}{
		"ordered":               {ordered, before, rollout.Begin},
		"no order":              {begun(policy()), before, rollout.Nothing},
		"runs already":          {ordered, running, rollout.Nothing},
		"ended":                 {ordered, rollout.Deployment{CurrentVersion: "v1", LastUpgradeID: "r-1-0-0-1"}, rollout.Nothing},
		"somebody was first":    {ordered, rollout.Deployment{CurrentVersion: "v1", LastUpgradeID: "u-1"}, rollout.Nothing},
		"unread":                {ordered, rollout.Deployment{}, rollout.Nothing},
		"paused":                {apply(ordered, rollout.Pause("")), before, rollout.Nothing},
		"stopped":               {apply(ordered, rollout.Stop("")), before, rollout.Nothing},
		"stopped and running":   {apply(ordered, rollout.Stop("")), running, rollout.Nothing},
		"rolls back":            {apply(ordered, rollout.RollBack(0, "")), before, rollout.Nothing},
		"rolls back and runs":   {apply(ordered, rollout.RollBack(0, "")), running, rollout.Abort},
		"resumed after a pause": {apply(apply(ordered, rollout.Pause("")), rollout.Resume()), before, rollout.Begin},
	} {
		if got := rollout.Next(tc.r, a, tc.d); got.Act != tc.want {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
	if got := rollout.Next(ordered, "services/s/deployments/c", before); got.Act != rollout.Nothing {
		t.Errorf("a deployment of no wave: %+v", got)
	}
}

// TestRollbackEnds: a rollback that is refused for ever stops with its reason. The limit begins anew
// when a deployment gets further, and another rollback tries again.
func TestRollbackEnds(t *testing.T) {
	t.Parallel()
	p := policy()
	p.OnFailure = rollout.RollBackToo
	const hour = 3600
	r := rollout.Advance(inGate(t, p), at(61, switchedTo("parked")))
	if r.State != rollout.RollingBack {
		t.Fatalf("it is %s: %s", r.State, r.Reason)
	}
	// Its order is given late, because the deployment could not be read.
	r = rollout.Advance(r, at(61+hour-1, one(rollout.Deployment{Unread: "gone"})))
	r = rollout.Advance(r, at(61+hour-1, switchedTo("parked")))
	item, _, _ := r.Item(a)
	r, _ = rollout.Report(r, a, item.ID, "there is no rollback to v1: it is disabled")
	r = rollout.Advance(r, at(61+2*hour-2, switchedTo("parked")))
	if r.State != rollout.RollingBack || !strings.Contains(r.Waits, "it is disabled") {
		t.Errorf("within the limit it is %s: %q", r.State, r.Waits)
	}
	r = rollout.Advance(r, at(61+2*hour, switchedTo("parked")))
	item, _, _ = r.Item(a)
	if r.State != rollout.Stopped || item.Result != rollout.NotRolled || !strings.Contains(r.Reason, "rolled back except "+a+": nothing happened for 1h0m0s; it waits for there is no rollback to v1: it is disabled") {
		t.Errorf("after the limit it is %s: %q, %+v", r.State, r.Reason, item)
	}
	r, does, err := rollout.RollBack(0, "")(r, "a test", start)
	if err != nil || len(does) == 0 {
		t.Fatalf("again: %q, %v", does, err)
	}
	if got := rollout.Next(r, a, switchedTo("")[a]); got.Act != rollout.Begin || got.Target != "v1" {
		t.Errorf("again: %+v", got)
	}
	if r = rollout.Advance(r, at(61+2*hour+1, switchedTo("parked"))); r.State != rollout.RollingBack {
		t.Errorf("again: it is %s: %s", r.State, r.Reason)
	}
}

// TestRollbackWaitsForWhatRuns: the limit gives up what does not begin, but not a rollback that runs,
// and nothing while another deployment gets further.
func TestRollbackWaitsForWhatRuns(t *testing.T) {
	t.Parallel()
	p := policy()
	p.OnFailure = rollout.RollBackToo
	r := rollout.New("r", "r-1", "v2", [][]string{{a, b}}, p, "a test", start)
	item := func(name string) rollout.Item {
		i, _, _ := r.Item(name)
		return i
	}
	ordered := func(name string) rollout.Deployment {
		return rollout.Deployment{CurrentVersion: "v2", LastUpgradeID: item(name).ID, LastSwitchID: item(name).ID, Against: "parked"}
	}
	seconds := 0
	look := func(later int, atA, atB rollout.Deployment) {
		seconds += later
		r = rollout.Advance(r, at(seconds, map[string]rollout.Deployment{a: atA, b: atB}))
	}
	look(0, rollout.Deployment{CurrentVersion: "v1"}, rollout.Deployment{CurrentVersion: "v1"})
	wasA, wasB := ordered(a), ordered(b)
	look(1, wasA, wasB)
	look(61, wasA, wasB)
	look(1, wasA, wasB)
	if r.State != rollout.RollingBack || item(a).Order != rollout.Back || item(b).Order != rollout.Back {
		t.Fatalf("it is %s: %+v", r.State, r.Waves)
	}
	r, _ = rollout.Report(r, b, item(b).ID, "it is disabled")
	goes := rollout.Deployment{CurrentVersion: "v2", LastUpgradeID: item(a).ID, UpgradeID: item(a).ID, LastSwitchID: wasA.LastSwitchID}
	back := rollout.Deployment{CurrentVersion: "v1", LastUpgradeID: item(a).ID, LastSwitchID: item(a).ID}
	before, then := rollout.Clone(r), seconds
	// a returns in the look that reaches the limit: b has another hour.
	look(3600, back, wasB)
	if r.State != rollout.RollingBack || item(a).Result != rollout.Returned || item(b).Result == rollout.NotRolled {
		t.Errorf("a has returned: it is %s: %+v", r.State, r.Waves)
	}
	look(3599, back, wasB)
	if r.State != rollout.RollingBack {
		t.Errorf("within the second hour it is %s", r.State)
	}
	// a runs when the limit is reached.
	r, seconds = before, then
	for range 2 {
		look(3600, goes, wasB)
		if r.State != rollout.RollingBack || item(a).Result != "" || item(b).Result != rollout.NotRolled || !strings.HasPrefix(r.Waits, a) {
			t.Fatalf("a runs: it is %s, waits for %q: %+v", r.State, r.Waits, r.Waves)
		}
	}
	look(1, back, wasB)
	if r.State != rollout.Stopped || item(a).Result != rollout.Returned || !strings.Contains(r.Reason, "rolled back except "+b+": nothing happened for 1h0m0s; it waits for it is disabled") {
		t.Errorf("at the end it is %s: %q, %+v", r.State, r.Reason, r.Waves)
	}
}

// TestOperator: which verb is possible in which state, and what it leaves alone.
func TestOperator(t *testing.T) {
	t.Parallel()
	verbs := map[string]rollout.Change{"pause": rollout.Pause(""), "stop": rollout.Stop(""), "resume": rollout.Resume(), "rollback": rollout.RollBack(0, ""), "far": rollout.RollBack(2, "")}
	ordered := rollout.Advance(begun(policy()), at(0, one(rollout.Deployment{CurrentVersion: "v1"})))
	for state, want := range map[rollout.State]string{
		rollout.Running:     "pause:PAUSED stop:STOPPED resume:- rollback:ROLLING_BACK far:refused forget:refused",
		rollout.Paused:      "pause:- stop:STOPPED resume:RUNNING rollback:ROLLING_BACK far:refused forget:refused",
		rollout.Stopped:     "pause:refused stop:- resume:RUNNING rollback:ROLLING_BACK far:refused forget:-",
		rollout.RollingBack: "pause:refused stop:STOPPED resume:refused rollback:- far:refused forget:refused",
		rollout.RolledBack:  "pause:refused stop:- resume:RUNNING rollback:ROLLING_BACK far:refused forget:-",
		rollout.Done:        "pause:refused stop:refused resume:refused rollback:ROLLING_BACK far:refused forget:-",
	} {
		r := rollout.Clone(ordered)
		r.State = state
		var got []string
		for _, verb := range []string{"pause", "stop", "resume", "rollback", "far"} {
			next, does, err := verbs[verb](r, "a test", start)
			switch {
			case err != nil:
				got = append(got, verb+":refused")
			case len(does) == 0:
				got = append(got, verb+":-")
			default:
				got = append(got, verb+":"+string(next.State))
				if err := rollout.Validate(next); err != nil {
					t.Errorf("%s of %s: %v", verb, state, err)
				}
			}
		}
		forget := "forget:-"
		if rollout.Forgettable(r) != nil {
			forget = "forget:refused"
		}
		if text := strings.Join(append(got, forget), " "); text != want {
			t.Errorf("%s: %s\nwant %s", state, text, want)
		}
	}
}

// TestValidate refuses what no driver could carry out.
func TestValidate(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*rollout.Rollout){
		"want up to 63":               func(r *rollout.Rollout) { r.Name = "A b" },
		"want a version":              func(r *rollout.Rollout) { r.TargetVersion = "" },
		"no waves":                    func(r *rollout.Rollout) { r.Waves = nil },
		"wave 2 has no deployment":    func(r *rollout.Rollout) { r.Waves[1].Items = nil },
		"is in wave 1 and in wave 2":  func(r *rollout.Rollout) { r.Waves[1].Items[0].Name = a },
		"want longer than the hold":   func(r *rollout.Rollout) { r.Policy.GateLimitMillis = 5000 },
		"want stop or rollback":       func(r *rollout.Rollout) { r.Policy.OnFailure = "" },
		"pause of -1 ms":              func(r *rollout.Rollout) { r.Policy.PauseMillis = -1 },
		"check errors is given twice": func(r *rollout.Rollout) { r.Policy.Checks = []string{"errors", "errors"} },
		"check: name":                 func(r *rollout.Rollout) { r.Policy.Checks = []string{"/bin/sh"} },
		"wave 2 of 2 does not exist":  func(r *rollout.Rollout) { r.Wave = 2 },
		"unknown state":               func(r *rollout.Rollout) { r.State = "X" },
	} {
		r := begun(policy())
		change(&r)
		if err := rollout.Validate(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := rollout.Validate(begun(policy())); err != nil {
		t.Error(err)
	}
}

// TestReport keeps the reason of the order that it names, and no other.
func TestReport(t *testing.T) {
	t.Parallel()
	r := rollout.Advance(begun(policy()), at(0, one(rollout.Deployment{CurrentVersion: "v1"})))
	if _, ok := rollout.Report(r, a, "r-1-0-0-0", "late"); ok {
		t.Error("a report of an earlier order counts")
	}
	r, ok := rollout.Report(r, a, "r-1-0-0-1", "a server\nis too old"+strings.Repeat("x", 1000))
	if item, _, _ := r.Item(a); !ok || !strings.HasPrefix(item.Detail, "a server is too old") || len(item.Detail) > 310 {
		t.Errorf("%t, %q", ok, item.Detail)
	}
	if _, again := rollout.Report(r, a, "r-1-0-0-1", r.Waves[0].Items[0].Detail); again {
		t.Error("an equal report changes the record")
	}
}

// TestResumeTwice: a later wave that went back is upgraded again, also if an earlier wave is current.
func TestResumeTwice(t *testing.T) {
	t.Parallel()
	r := begun(policy())
	r.State, r.Wave = rollout.Stopped, 0
	r.Waves[1].Items[0] = rollout.Item{Name: b, Order: rollout.Back, ID: "r-1-1-0-2", From: "v2", Home: "v1", Tries: 2, Result: rollout.Returned}
	r, _, err := rollout.Resume()(r, "a test", start)
	if item, _, _ := r.Item(b); err != nil || item.Order != "" || item.Result != "" || item.Tries != 2 || r.Wave != 0 {
		t.Errorf("%v: wave %d, %+v", err, r.Wave, item)
	}
}
