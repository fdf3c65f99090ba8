package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/upgradestate"
)

// serving is a server that counts calls for a day.
func serving(id string, used map[string]upgradestate.Usage) upgradestate.ServerState {
	s := deploymenttest.Server(id)
	s.Active, s.Since, s.Used = "v2", time.Now().Add(-24*time.Hour).UTC().Format(time.RFC3339), used
	return s
}

func TestCompleteLooksWhoUsesIt(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) string {
		return time.Now().Add(-d).UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	recent := ago(10 * time.Minute)
	const confirm = `"confirm": "` + name + `/replicaSet/c1/mongo:dbc_v1"`
	for name, tc := range map[string]struct {
		server upgradestate.ServerState
		body   string
		want   string // empty: it is retired
	}{
		"unused":        {serving("s-1", nil), "", ""},
		"used long ago": {serving("s-1", map[string]upgradestate.Usage{"v1": {Calls: 9, Last: ago(2 * time.Hour)}}), "", ""},
		"used": {serving("s-1", map[string]upgradestate.Usage{"v1": {Calls: 9, Last: recent}}), "",
			"server s-1 was called by v1 9 times, the last time at " + recent + ", less than 1h0m0s ago: move its clients first (its /usage names them), or give --ignore-usage"},
		"used, and ignored":     {serving("s-1", map[string]upgradestate.Usage{"v1": {Calls: 9, Last: recent}}), `"ignoreUsage": true`, ""},
		"used before a shorter": {serving("s-1", map[string]upgradestate.Usage{"v1": {Calls: 9, Last: recent}}), `"unusedForMs": "60000"`, ""},
		"other versions only":   {serving("s-1", map[string]upgradestate.Usage{"v2": {Calls: 9, Last: recent}}), "", ""},
		"too young": {func() upgradestate.ServerState { s := serving("s-1", nil); s.Since = recent; return s }(), "",
			"server s-1 counts calls only since " + recent + ", and 1h0m0s without calls by v1 are required: wait, give a shorter --unused-for, or give --ignore-usage"},
		"cannot tell": {func() upgradestate.ServerState { s := serving("s-1", nil); s.Since = ""; return s }(), "",
			"server s-1 does not report how its APIs are used: see its /usage, or give --ignore-usage"},
		"serves it": {func() upgradestate.ServerState { s := serving("s-1", nil); s.Active = "v1"; return s }(), `"ignoreUsage": true`,
			"server s-1 serves from v1 now: wait until it has followed the switch, or stop it"},
		"knows no other": {func() upgradestate.ServerState { s := serving("s-1", nil); s.Versions = []string{"v1"}; return s }(), `"ignoreUsage": true`,
			"server s-1 knows only v1: update or stop it"},
		"an application": {upgradestate.ServerState{ID: "client-x", Protocol: 1, Client: true, Active: "v1"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := deploymenttest.New(t).WithVersions(t)
			w.Flip(t)
			a := serve(t, w)
			if err := w.Store.Register(t.Context(), deploymenttest.Lease(t, w.Coord), tc.server); err != nil {
				t.Fatal(err)
			}
			body := `{"version": "v1", ` + confirm
			if tc.body != "" {
				body += ", " + tc.body
			}
			if tc.want == "" {
				a.verb(t, "Complete", body+"}", "no upgrade or rollback to v1 is possible afterwards")
				return
			}
			before := a.stored(t)
			a.fails(t, "Complete", body+"}", "failed_precondition: complete: "+tc.want)
			a.fails(t, "Complete", body+`, "dryRun": true}`, "failed_precondition: complete: "+tc.want)
			if diff := cmp.Diff(before, a.stored(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCompleteLongAfterTheSwitch: what clients were served from a moment ago is not dropped.
func TestCompleteLongAfterTheSwitch(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	at := time.Now().Add(-30 * time.Minute).UTC().Format(time.RFC3339)
	w.FlipAt(t, at)
	a := serve(t, w)
	const confirmed = `"version": "v1", "confirm": "` + name + `/replicaSet/c1/mongo:dbc_v1"`
	a.fails(t, "Complete", "{"+confirmed+"}", "failed_precondition: complete: v1 was served until "+at+", less than 1h0m0s ago: wait, give a shorter --unused-for, or give --ignore-usage")
	a.verb(t, "Complete", "{"+confirmed+`, "unusedForMs": "60000"}`, "no upgrade or rollback to v1 is possible afterwards")
}

func TestComplete(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	a.fails(t, "Complete", `{}`, `invalid_argument: version "": want the version to retire, such as v1`)
	a.fails(t, "Complete", `{"version": "v1", "unusedForMs": "-1"}`, `invalid_argument: unused_for_ms "-1": want 0 for 3600000, or up to 31622400000`)
	for _, wrong := range []string{"-1", "31622400001"} {
		a.fails(t, "Complete", `{"version": "v1", "keepForMs": "`+wrong+`"}`, `invalid_argument: keep_for_ms "`+wrong+`": want 0 to drop at once, or up to 31622400000`)
	}
	a.fails(t, "Complete", `{"version": "v1"}`, `failed_precondition: complete: v1 is the current version: only a version before a switch can be retired`)
	a.fails(t, "Complete", `{"version": "v2"}`, `failed_precondition: complete: v2 is still in use: no switch was made yet`)
	d := w.Flip(t)
	a.fails(t, "Complete", `{"version": "v7"}`, `failed_precondition: complete: unknown version "v7"`)
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h2"}})
	v1, _ := d.Namespace("v1")
	const right = name + "/replicaSet/c1/mongo:dbc_v1"
	what := "drop collection " + v1.Kinds[0].Physical + " (packages) of mongo:dbc_v1; leave a view packages, so that applications that still use this name get an error; the database stays for the view; drop the state of copying to and from v1; no upgrade or rollback to v1 is possible afterwards; to do that, give --confirm " + right
	before := a.stored(t)
	a.fails(t, "Complete", `{"version": "v1", "keepForMs": "0"}`, `failed_precondition: complete: this is final: it would `+what)
	for _, wrong := range []string{
		name + "/replicaSet/staging/mongo:dbc_v1", "services/other/deployments/x/replicaSet/c1/mongo:dbc_v1",
		name + "/replicaSet/c1/mongo:dbc_v2", name + "/replicaSet/c2/mongo:dbc_v2", name + "/mongo:dbc_v1", name, "mongo:dbc_v1",
	} {
		for _, dry := range []string{"", `, "dryRun": true`} {
			a.fails(t, "Complete", `{"version": "v1", "keepForMs": "0", "confirm": "`+wrong+`"`+dry+`}`,
				`failed_precondition: complete: "`+wrong+`" does not confirm it for v1 of this deployment: it would `+what)
		}
	}
	if diff := cmp.Diff(before, a.stored(t)); diff != "" {
		t.Error(diff)
	}
	var dry struct{ Confirm string }
	if a.ok(t, "Complete", `{"version": "v1", "keepForMs": "0", "dryRun": true}`, &dry); dry.Confirm != right {
		t.Errorf("the dry run asks for %q, want %q", dry.Confirm, right)
	}
	a.verb(t, "Complete", `{"version": "v1", "keepForMs": "0", "confirm": "`+right+`"}`, "drop collection")
	var got struct {
		Retiring          string
		Retired           []string
		AvailableUpgrades []any
		RollbackSafe      any
		ReverseSync       struct{ Reason string }
		Namespaces        []struct{ Version string }
	}
	a.ok(t, "GetDeployment", `{}`, &got)
	if got.Retiring != "v1" || len(got.AvailableUpgrades) != 0 || got.RollbackSafe != nil || got.ReverseSync.Reason != "v1 was retired" {
		t.Errorf("retiring: %+v", got)
	}
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1"}`, `failed_precondition: begin-upgrade: v1 is being retired: wait until it ends`)
	w.Apply(t, upgradestate.Dropped{Version: "v1"})
	var again told
	a.ok(t, "Complete", `{"version": "v1"}`, &again)
	if diff := cmp.Diff([]string{"nothing: v1 was retired already"}, again.Effects); diff != "" {
		t.Error(diff)
	}
	a.ok(t, "GetDeployment", `{}`, &got)
	if got.Retiring != "" || !slices.Equal(got.Retired, []string{"v1"}) || len(got.Namespaces) != 1 {
		t.Errorf("retired: %+v", got)
	}
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1"}`, `failed_precondition: begin-upgrade: v1 was retired, so no upgrade can return to it`)
}

// TestCompleteKeeps: what is retired is set aside, and an operator changes until when, or has
// it dropped, with the same confirmation.
func TestCompleteKeeps(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	w.Flip(t)
	const confirm = `"confirm": "` + name + `/replicaSet/c1/mongo:dbc_v1"`
	kept := func() (until time.Duration, collections []string) {
		t.Helper()
		var got struct {
			Kept []struct {
				Version, Location, Until string
				Collections              []string
			}
		}
		a.ok(t, "GetDeployment", `{}`, &got)
		if len(got.Kept) == 0 {
			return 0, nil
		}
		k := got.Kept[0]
		at, err := time.Parse(time.RFC3339, k.Until)
		if k.Version != "v1" || k.Location != "mongo:dbc_v1" || err != nil && k.Until != "" {
			t.Errorf("kept: %+v, %v", k, err)
		}
		if k.Until == "" {
			return 0, k.Collections
		}
		return time.Until(at), k.Collections
	}
	about := func(want time.Duration) {
		t.Helper()
		if until, _ := kept(); until > want || until < want-10*time.Minute {
			t.Errorf("kept for %s, want %s", until, want)
		}
	}
	var does told
	a.ok(t, "Complete", `{"version": "v1", "dryRun": true}`, &does)
	if text := strings.Join(does.Effects, "; "); !strings.Contains(text, "aside as dbc_retired.v1.packages.n") || !strings.Contains(text, "drop the collections that are set aside at ") || strings.Contains(text, "drop collection") {
		t.Errorf("it would %s", text)
	}
	// A dry run is a moment earlier, so that it would name an earlier time.
	a.ok(t, "Complete", `{"version": "v1", `+confirm+`}`, &does)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1"}`, `failed_precondition: begin-upgrade: v1 is being retired: wait until it ends`)
	w.Apply(t, upgradestate.SetAside{Version: "v1"})
	about(24 * time.Hour)
	a.ok(t, "Complete", `{"version": "v1", `+confirm+`}`, &does)
	if diff := cmp.Diff([]string{"nothing: v1 was retired already"}, does.Effects); diff != "" {
		t.Error(diff)
	}
	about(24 * time.Hour)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1"}`, `failed_precondition: begin-upgrade: v1 was retired, so no upgrade can return to it`)
	a.fails(t, "Complete", `{"version": "v1", "keepForMs": "0"}`, "failed_precondition: complete: this is final: it would drop the collections of v1 now; to do that, give --confirm "+name+"/replicaSet/c1/mongo:dbc_v1")
	about(24 * time.Hour)
	a.ok(t, "Complete", `{"version": "v1", "keepForMs": "7200000", `+confirm+`}`, &does)
	if len(does.Effects) != 1 || !strings.HasPrefix(does.Effects[0], "keep the collections of v1 until ") {
		t.Errorf("it says %q", does.Effects)
	}
	about(2 * time.Hour)
	a.verb(t, "Complete", `{"version": "v1", "keepForMs": "0", `+confirm+`}`, "drop the collections of v1 now")
	if until, names := kept(); until > 0 || len(names) == 0 {
		t.Errorf("kept %v for %s, want it to be dropped now", names, until)
	}
	a.fails(t, "Complete", `{"version": "v1", "keepForMs": "7200000", `+confirm+`}`, "failed_precondition: keep: the collections of v1 are being dropped already")
	w.Apply(t, upgradestate.Dropped{Version: "v1"})
	if _, names := kept(); names != nil {
		t.Errorf("%v is still kept", names)
	}
	a.ok(t, "Complete", `{"version": "v1", "keepForMs": "7200000", `+confirm+`}`, &does)
	if diff := cmp.Diff([]string{"nothing: v1 was retired already"}, does.Effects); diff != "" {
		t.Error(diff)
	}
}
