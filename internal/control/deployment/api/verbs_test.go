package api_test

import (
	"context"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/upgradestate"
)

// told is what a verb answers.
type told struct {
	Effects      []string
	UpgradeState *struct {
		ID                      string
		Policy                  struct{ Hold bool }
		SwitchAsked, ToSnapshot bool
	}
	History []struct{ What, By, Detail string }
}

var rfc3339 = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

func timeless(effects []string) string {
	return rfc3339.ReplaceAllString(strings.Join(effects, "\n"), "TIME")
}

// verb makes a call three times: as a dry run, which must leave everything as it is, then
// so that it works, then once more, which must change nothing and say so.
func (a served) verb(t *testing.T, method, body string, effect string) told {
	t.Helper()
	body = strings.TrimSuffix(body, "}")
	if body != "{" {
		body += ","
	}
	before := a.stored(t)
	var dry, did, again told
	a.ok(t, method, body+`"requestedBy": "ann@desk", "dryRun": true}`, &dry)
	if diff := cmp.Diff(before, a.stored(t)); diff != "" {
		t.Errorf("%s: the dry run changed something:\n%s", method, diff)
	}
	a.ok(t, method, body+`"requestedBy": "ann@desk"}`, &did)
	// Times are those of the call, and a dry run is a moment earlier.
	if timeless(dry.Effects) != timeless(did.Effects) || !strings.Contains(strings.Join(did.Effects, "; "), effect) {
		t.Errorf("%s says before %q, after %q, want %q", method, dry.Effects, did.Effects, effect)
	}
	after := a.stored(t)
	if cmp.Equal(before, after) {
		t.Errorf("%s changed nothing", method)
	}
	a.ok(t, method, body+`"requestedBy": "bob@laptop"}`, &again)
	if len(again.Effects) != 1 || !strings.HasPrefix(again.Effects[0], "nothing: ") {
		t.Errorf("%s again says %q", method, again.Effects)
	}
	// It was called, which the history tells, and nothing else has changed.
	repeated := a.stored(t)
	if last := cutHistory(t, after, repeated); last.What != "repeat" || last.By != "bob@laptop" || last.Detail == "" {
		t.Errorf("%s again is in the history as %+v", method, last)
	}
	if diff := cmp.Diff(after, repeated); diff != "" {
		t.Errorf("%s again changed something:\n%s", method, diff)
	}
	return did
}

// cutHistory takes the history out of records, and returns the last entry of the last one.
func cutHistory(t *testing.T, stored ...map[string]string) (last upgradestate.Entry) {
	t.Helper()
	for _, s := range stored {
		for key, value := range s {
			if !strings.HasSuffix(key, "/record") {
				continue
			}
			var d upgradestate.Deployment
			if err := json.Unmarshal([]byte(value), &d); err != nil {
				t.Fatal(err)
			}
			last = d.History[len(d.History)-1]
			d.History = nil
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			s[key] = string(text)
		}
	}
	return last
}

// stored is everything that is kept.
func (a served) stored(t *testing.T) map[string]string {
	t.Helper()
	kvs, _, err := a.Coord.List(t.Context(), deployment.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range kvs {
		all[kv.Key] = string(kv.Value)
	}
	return all
}

func TestPace(t *testing.T) {
	t.Parallel()
	a := serve(t, deploymenttest.New(t).WithVersions(t))
	a.verb(t, "SetPace", `{"paused": true, "reason": " backup "}`, "pause bulk work")
	a.verb(t, "SetPace", `{"reason": "a longer backup"}`, `the reason "a longer backup"`)
	a.verb(t, "SetPace", `{"maxRate": 500, "maxSourceLoad": 60, "window": "22:00-05:00"}`, "at most 500 records a second in all, not as fast as configured; slow down above 60 % source load")
	a.verb(t, "SetPace", `{"paused": false}`, "resume bulk work where it stopped (it was paused: a longer backup)")
	got := a.verb(t, "SetPace", `{"window": ""}`, "at any time, not within 22:00-05:00 UTC")
	var what []string
	for _, h := range got.History {
		if h.What != "repeat" {
			what = append(what, h.What+" by "+h.By)
		}
	}
	if diff := cmp.Diff([]string{"pause by ann@desk", "pace by ann@desk", "resume by ann@desk", "pace by ann@desk"}, what); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	before := a.stored(t)
	a.fails(t, "SetPace", `{}`, `failed_precondition: pace: nothing to set: give paused, a rate, a source load or a window`)
	a.fails(t, "SetPace", `{"maxRate": -1}`, `failed_precondition: pace: a rate of -1 is not within 0 to 10000000`)
	a.fails(t, "SetPace", `{"maxSourceLoad": 101, "dryRun": true}`, `failed_precondition: pace: a source load of 101 % is not within 0 to 100`)
	a.fails(t, "SetPace", `{"window": "22:00"}`, `failed_precondition: pace: window "22:00": want HH:MM-HH:MM with two different times, such as 22:00-05:00`)
	a.fails(t, "SetPace", `{"paused": true, "reason": "`+strings.Repeat("x", 501)+`"}`, `invalid_argument: reason "xxxxxxxxxxxxxxxxxxxx...": want at most 500 bytes`)
	a.fails(t, "SetPace", `{"paused": true, "requestedBy": "a\nb"}`, `invalid_argument: requested_by "a\nb": want one line of text`)
	a.fails(t, "SetPace", `{"paused": true, "requestedBy": "`+strings.Repeat("x", 201)+`"}`, `invalid_argument: requested_by "xxxxxxxxxxxxxxxxxxxx...": want at most 200 bytes`)
	if diff := cmp.Diff(before, a.stored(t)); diff != "" {
		t.Errorf("wrong input changed something:\n%s", diff)
	}
}

// TestUnknownOutcome: the answer of the store is lost. What was asked for is done once, and
// told as done.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	w.Coord.OnCommit(deploymenttest.Once(memcoord.LoseAnswer))
	var got told
	a.ok(t, "SetPace", `{"paused": true}`, &got)
	if len(got.History) != 1 || len(got.Effects) != 1 || !strings.HasPrefix(got.Effects[0], "pause") {
		t.Errorf("got %+v", got)
	}
	w.Coord.OnCommit(deploymenttest.Once(memcoord.LoseAnswer))
	a.ok(t, "BeginUpgrade", `{"targetVersion": "v2"}`, &got)
	if got.UpgradeState == nil || !strings.HasPrefix(got.Effects[0], "copy v1 to v2") {
		t.Errorf("begun %+v", got)
	}
}

// TestHoldAndSwitch: the configuration holds upgrades, and a request adds to that.
func TestHoldAndSwitch(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serveWith(t, w, api.Config{Policy: upgradestate.Policy{Hold: true}})
	a.fails(t, "Switch", `{}`, `failed_precondition: switch: no such upgrade is running: begin one`)
	a.fails(t, "SetPolicy", `{"hold": true}`, `failed_precondition: set-policy: no such upgrade is running`)
	got := a.verb(t, "BeginUpgrade", `{"targetVersion": "v2"}`, "hold at ready until 'switch'")
	id := got.UpgradeState.ID
	if !got.UpgradeState.Policy.Hold {
		t.Error("it does not hold")
	}
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v2", "policy": {"maxPauseMs": 5}}`, `failed_precondition: begin-upgrade: upgrade `+id+` to v2 is already running with hold at ready, not hold at ready, pause at most 5 ms: change that with 'set-policy'`)
	a.fails(t, "SetPolicy", `{}`, `failed_precondition: set-policy: nothing to set: give hold, deadline, max pause, max hold or retries`)
	a.fails(t, "SetPolicy", `{"deadlineMs": 10}`, `failed_precondition: set-policy: a deadline of 10 ms is not within 1000 to 600000`)
	a.fails(t, "SetPolicy", `{"upgradeId": "u-x", "hold": false}`, `failed_precondition: set-policy: no such upgrade is running`)
	a.verb(t, "SetPolicy", `{"deadlineMs": 5000, "maxPauseMs": 100}`, `from "hold at ready" to "hold at ready, deadline 5000 ms, pause at most 100 ms"`)
	// Begun again as it was: what was changed since is not meant.
	var again told
	a.ok(t, "BeginUpgrade", `{"targetVersion": "v2"}`, &again)
	if again.UpgradeState.ID != id || !strings.HasPrefix(again.Effects[0], "nothing: ") {
		t.Errorf("again %+v", again)
	}
	a.fails(t, "Switch", `{"upgradeId": "u-x"}`, `failed_precondition: switch: no such upgrade is running: begin one`)
	d := w.Apply(t, upgradestate.Report{ID: id, State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{0, 1, 2, 3}})
	if upgradestate.ReadyToSwitch(d) {
		t.Fatal("it would switch automatically")
	}
	var waits struct{ Progress struct{ WaitsFor []string } }
	a.ok(t, "GetDeployment", `{}`, &waits)
	if !slices.Contains(waits.Progress.WaitsFor, "'switch': this upgrade holds at ready") {
		t.Errorf("it waits for %q", waits.Progress.WaitsFor)
	}
	a.verb(t, "Switch", `{}`, "switch from v1 to v2 as soon as everything is ready")

	// While it switches, each verb says what is the matter.
	w.Apply(t, upgradestate.StartSwitch{ID: id})
	a.ok(t, "Switch", `{}`, &again)
	a.fails(t, "SetPolicy", `{"hold": false}`, `failed_precondition: set-policy: upgrade `+id+` is switching already: let it finish or abort it`)
	a.fails(t, "Complete", `{"version": "v2"}`, `failed_precondition: complete: upgrade `+id+` to v2 is running: let it finish or abort it first`)
	a.verb(t, "AbortUpgrade", `{"reason": "too slow"}`, "complete or remove the announced fences")
	a.fails(t, "Switch", `{}`, `failed_precondition: switch: upgrade `+id+` is being aborted (too slow): wait until it ends, then begin again`)
}

// TestSwitchAfterTheFlip is a repetition, as long as no other upgrade was begun.
func TestSwitchAfterTheFlip(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Flip(t)
	a := serve(t, w)
	var got told
	a.ok(t, "Switch", `{}`, &got)
	if diff := cmp.Diff([]string{"nothing: u1 switched to v2 already"}, got.Effects); diff != "" {
		t.Error(diff)
	}
}

// lossOf is a served.Loss.
type lossOf struct {
	report *pb.LossReport
	err    error
}

func (l lossOf) EstimateLoss(_ context.Context, progress func(int64)) (*pb.LossReport, error) {
	progress(1000)
	return l.report, l.err
}

type everyWay struct{}

func (everyWay) TransformHash(string, string) (string, error) { return "h2", nil }

func TestBackToTheSnapshot(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Flip(t)
	loss := &lossOf{report: &pb.LossReport{Compared: 40, Created: 2, Changed: 1, Examples: []string{"created packages/p-1"}}}
	a := serveWith(t, w, api.Config{Upgrades: everyWay{}, Loss: loss})
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "acceptLoss": true}`, `invalid_argument: accept_loss "true": want to_snapshot together with it`)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true, "confirm": "x"}`, `invalid_argument: confirm "x": want accept_loss together with it`)
	const right = name + "/replicaSet/c2/mongo:dbc_v2"
	const numbers = `failed_precondition: begin-upgrade: the rollback to v1 as the switch left it loses all later writes: 2 created, 1 changed, 0 deleted of 40 groups compared, such as created packages/p-1; to accept that, give --accept-loss --confirm ` + right
	before := a.stored(t)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true}`, numbers)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true, "dryRun": true}`, numbers)
	loss.err = errors.New("more than 7 groups differ")
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true}`, `failed_precondition: estimate loss: more than 7 groups differ`)
	// What confirms it is for the database that loses: no other's fits.
	const would = "it would lose the writes to v2 since the switch; to do that, give --confirm " + right
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true, "acceptLoss": true}`, `failed_precondition: begin-upgrade: this is final: `+would)
	for _, wrong := range []string{name + "/replicaSet/staging/mongo:dbc_v2", name + "/replicaSet/c1/mongo:dbc_v1", "mongo:dbc_v2", name} {
		for _, dry := range []string{"", `, "dryRun": true`} {
			a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true, "acceptLoss": true, "confirm": "`+wrong+`"`+dry+`}`,
				`failed_precondition: begin-upgrade: "`+wrong+`" does not confirm it for v2 of this deployment: `+would)
		}
	}
	if diff := cmp.Diff(before, a.stored(t)); diff != "" {
		t.Error(diff)
	}
	// Where the old version follows, nothing needs to be lost.
	d := w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h2"}})
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true, "acceptLoss": true}`, `failed_precondition: begin-upgrade: v1 follows v2: use 'rollback' without --to-snapshot, so that nothing is lost; if the database of v2 is lost, see docs/break-glass.md`)
	w.Apply(t, upgradestate.WithdrawAvailable{TargetVersion: "v1"})
	for d.Namespaces[1].Kinds[0].Pending != nil { // the collection takes its name
		for _, act := range upgradestate.Actions(d) {
			p := act.(upgradestate.Execute)
			d = w.Apply(t, upgradestate.Confirmed{Version: p.Version, Kind: p.Place.Kind, To: p.Pending.To, From: p.Pending.From})
		}
	}
	got := a.verb(t, "BeginUpgrade", `{"targetVersion": "v1", "toSnapshot": true, "acceptLoss": true, "confirm": "`+right+`"}`, "without the later writes to v2")
	if !got.UpgradeState.ToSnapshot {
		t.Errorf("begun %+v", got.UpgradeState)
	}
}

// TestWaiveKind: all of a kind that are parked, now and later, count as waived wherever
// somebody looks, until the direction ends.
func TestWaiveKind(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	park := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, i%2, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	blocking := func(want int) {
		t.Helper()
		n, err := deployment.ForDriver{Store: w.Store}.Parked(t.Context())
		if err != nil || n != want {
			t.Errorf("the driver sees %d block (%v), want %d", n, err, want)
		}
		n = 0
		for _, shard := range []int{0, 1} { // as an engine looks
			list, err := w.Store.Parked(t.Context(), dir, shard)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				if !p.Waived {
					n++
				}
			}
		}
		if n != want {
			t.Errorf("engines see %d block, want %d", n, want)
		}
	}
	park(0, 3)
	blocking(3)
	a.fails(t, "WaiveKind", `{"kind": "pakages"}`, `invalid_argument: kind "pakages": want one of packages`)
	before := a.stored(t)
	const would = `let the switch continue without the 3 of packages that are parked now, and any that is parked later in this direction: the other version will lack them or have an earlier state`
	a.fails(t, "WaiveKind", `{"kind": "packages"}`, `failed_precondition: waive: it would `+would+`; to do that, give --count 3`)
	for _, dry := range []string{"", `, "dryRun": true`} {
		a.fails(t, "WaiveKind", `{"kind": "packages", "count": "2"`+dry+`}`, `failed_precondition: waive: --count 2 was given, but 3 of packages are parked now: check them again, and give --count 3`)
		a.fails(t, "WaiveKind", `{"kind": "packages", "count": "0"`+dry+`}`, `failed_precondition: waive: --count 0 was given, but 3 of packages are parked now: check them again, and give --count 3`)
	}
	var tried told
	a.ok(t, "WaiveKind", `{"kind": "packages", "dryRun": true}`, &tried)
	if diff := cmp.Diff([]string{would}, tried.Effects); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, a.stored(t)); diff != "" {
		t.Error(diff)
	}
	blocking(3)
	a.verb(t, "WaiveKind", `{"kind": "packages", "count": "3"}`, "the 3 of packages that are parked now")
	blocking(0)
	park(3, 6)
	blocking(0)
	// An engine that parks again what it has in memory does not take the waiver back, and
	// the overflow of the kind does not block either.
	park(0, 6)
	for i := range deployment.MaxParked + 2 {
		if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 0, 2*i)); err != nil {
			t.Fatal(err)
		}
	}
	blocking(0)
	if err := w.Store.ForgetBefore(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	park(0, 1)
	blocking(1)
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(d.History); n != 2 || d.History[1].What != "repeat" || d.History[0].What != "waive" || d.History[0].By != "ann@desk" {
		t.Errorf("history %+v", d.History)
	}
}

// TestWaiveIsRemarked each time, and not where it is only tried.
func TestWaiveIsRemarked(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, 0, 1)); err != nil {
		t.Fatal(err)
	}
	var p struct{ Waived bool }
	for _, tc := range []struct {
		dryRun, waived bool
		remarks        int
	}{{true, false, 0}, {false, true, 1}, {false, true, 2}, {true, true, 2}} {
		a.ok(t, "WaiveParked", fmt.Sprintf(`{"kind": "packages", "key": "p-1", "dryRun": %t}`, tc.dryRun), &p)
		d, err := w.Store.Get(t.Context())
		if err != nil || p.Waived != tc.waived || len(d.History) != tc.remarks {
			t.Errorf("%+v: waived %t, history %+v, %v", tc, p.Waived, d.History, err)
		}
	}
	d, err := w.Store.Get(t.Context())
	if err != nil || d.History[0].Detail != "packages/p-1" || d.History[0].By != "an API client" {
		t.Errorf("history %+v, %v", d.History, err)
	}
}

// TestRollbackSafe tells, also as a stream, what the rollback would leave behind.
func TestRollbackSafe(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Flip(t)
	var away atomic.Value
	away.Store("")
	a := serveWith(t, w, api.Config{Upgrades: everyWay{}, BackAway: func(upgradestate.Deployment) string { return away.Load().(string) }})
	type safe struct {
		Safe             bool
		Blocking, Waived string
		Reason           string
	}
	get := func() safe {
		t.Helper()
		var got struct{ RollbackSafe safe }
		a.ok(t, "GetDeployment", `{}`, &got)
		return got.RollbackSafe
	}
	want := func(s safe) {
		t.Helper()
		if diff := cmp.Diff(s, get()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want(safe{Blocking: "0", Waived: "0", Reason: "v1 does not follow yet: a controller announces it within seconds after a switch, so retry; if this does not help, its entry in dbs is disabled or missing, or no controller runs"})
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h2"}})
	want(safe{Safe: true, Blocking: "0", Waived: "0"})
	away.Store("no primary")
	want(safe{Blocking: "0", Waived: "0", Reason: "the database of v1 cannot be used now, but a rollback needs it: no primary"})
	away.Store("")
	for i := range 2 {
		if err := w.Store.Park(t.Context(), deploymenttest.Parked("2-v2-v1-h2", i, i)); err != nil {
			t.Fatal(err)
		}
	}
	want(safe{Blocking: "2", Waived: "0", Reason: "2 records cannot be migrated back to v1: see 'parked', fix or waive them"})
	back := func(want ...string) {
		t.Helper()
		var got struct{ Effects []string }
		a.ok(t, "BeginUpgrade", `{"targetVersion": "v1", "dryRun": true}`, &got)
		if len(got.Effects) == 0 || !slices.Equal(got.Effects[:len(got.Effects)-1], want) {
			t.Errorf("the rollback: %q, want %q", got.Effects, want)
		}
	}
	const goes = "return to v1, which follows v2: it waits for changes that are not applied yet"
	back(goes, "wait until nothing blocks: 2 records cannot be migrated back to v1: see 'parked', fix or waive them")
	var list struct{ Parked []struct{ Direction string } }
	a.ok(t, "ListParked", `{}`, &list)
	if len(list.Parked) != 2 || list.Parked[0].Direction != "2-v2-v1-h2" {
		t.Errorf("listed %+v", list)
	}
	a.ok(t, "WaiveParked", `{"kind": "packages", "key": "p-0"}`, &struct{}{})
	want(safe{Blocking: "1", Waived: "1", Reason: "1 record cannot be migrated back to v1: see 'parked', fix or waive them"})
	a.verb(t, "WaiveKind", `{"kind": "packages", "count": "1"}`, "the 1 of packages")
	want(safe{Safe: true, Blocking: "0", Waived: "2"})
	back(goes, "leave out waived records (2 records): v1 lacks them or has an earlier state; v2 keeps them")
}

// tasks are api.Updates.
type tasks struct{}

func (tasks) Tasks() []*pb.ListUpdatesResponse_Task {
	return []*pb.ListUpdatesResponse_Task{{Name: "fill", Version: "v1", Kind: "packages"}}
}

func (tasks) Task(name string) (upgradestate.Update, error) {
	if name != "fill" && name != "empty" {
		return upgradestate.Update{}, fmt.Errorf("unknown data update %q: there are fill and empty", name)
	}
	return upgradestate.Update{Name: name, Version: "v1", Kind: "packages", Hash: "u1"}, nil
}

func TestUpdates(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serveWith(t, w, api.Config{Updates: tasks{}})
	var list struct{ Tasks []struct{ Name string } }
	if a.ok(t, "ListUpdates", `{}`, &list); len(list.Tasks) != 1 || list.Tasks[0].Name != "fill" {
		t.Errorf("listed %+v", list)
	}
	a.fails(t, "BeginUpdate", `{}`, `invalid_argument: task "": want the name of a data update from ListUpdates`)
	a.fails(t, "BeginUpdate", `{"task": "x"}`, `failed_precondition: update: unknown data update "x": there are fill and empty`)
	a.fails(t, "CancelUpdate", `{}`, `failed_precondition: cancel update: no data update runs`)
	a.verb(t, "BeginUpdate", `{"task": "fill"}`, "run data update fill once over all packages of v1")
	a.fails(t, "BeginUpdate", `{"task": "empty"}`, `failed_precondition: update empty: data update fill is running: let it finish or cancel it`)
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.verb(t, "CancelUpdate", `{"updateId": "`+d.Update.ID+`"}`, "end data update fill after 0 of 4 shards")
}

// TestWithoutHooks: what this controller cannot do, it says.
func TestWithoutHooks(t *testing.T) {
	t.Parallel()
	a := serve(t, deploymenttest.New(t).WithVersions(t))
	a.fails(t, "Plan", `{}`, `failed_precondition: plan: this controller cannot: ask a controller that is configured for it`)
	a.fails(t, "ListUpdates", `{}`, `failed_precondition: list updates: this controller cannot: ask a controller that is configured for it`)
	a.fails(t, "BeginUpdate", `{"task": "fill"}`, `failed_precondition: update: this controller cannot: ask a controller that is configured for it`)
	a.ok(t, "CreateDeployment", `{"name": "`+other+`", "version": "v1"}`, &struct{}{})
	a.fails(t, "Plan", `{"name": "`+other+`"}`, `failed_precondition: plan: this controller is not configured for `+other+`: ask a controller that is`)
}
