package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

const other = "services/other/deployments/eu"

func TestGetReadsAsDocumented(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Begin(t)
	w.Apply(t, upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{2, 0}})
	l := deploymenttest.Lease(t, w.Coord)
	if err := w.Store.Register(t.Context(), l, deploymenttest.Server("bbs-1")); err != nil {
		t.Fatal(err)
	}
	if err := w.Store.PublishProgress(t.Context(), "ctl-1", []syncer.Progress{
		{Shard: 0, Owner: "ctl-1", State: "ready", Copied: 10, Total: 10},
		{Shard: 1, Owner: "ctl-1", State: "copying", Copied: 5, Total: 20, Rate: 2.5, LagMillis: new(int64(40)), WaitsFor: "copy of 1 ranges", Code: upgradestate.BlockCopy},
	}, l.ID()); err != nil {
		t.Fatal(err)
	}
	deploymenttest.Put(t, w.Coord, deploymenttest.Key("controllers/ctl%2F1"), "ctl/1")
	a := serve(t, w)
	var got map[string]any
	a.ok(t, "GetDeployment", "", &got)
	revision := got["revision"]
	want := map[string]any{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{
		"name": "services/bbs.example.com/deployments/us-west2", "currentVersion": "v1",
		"upgradeState": {
			"targetVersion": "v2", "readyShards": [0, 2], "pendingShards": [1, 3], "state": "INITIAL_SYNCING",
			"id": "u1", "step": "", "attempt": "1", "transformHash": "h1", "abortReason": "", "again": false, "failures": 0, "lastFailure": "",
			"policy": {"hold": false, "deadlineMs": "0", "maxPauseMs": "0", "maxHoldMs": "0", "retries": 0}, "switchAsked": false, "toSnapshot": false
		},
		"pace": {"paused": false, "reason": "", "maxRate": 0, "maxSourceLoad": 0, "window": "", "now": []},
		"effects": [], "retiring": "", "retired": [], "kept": [],
		"epoch": "1", "ringSize": 4, "revision": %q,
		"namespaces": [
			{"version": "v1", "location": "mongo:dbc_v1", "kinds": [{
				"kind": "packages", "fixed": true, "physicalName": "packages", "id": "a1", "fenceClass": "view",
				"fenceGuarantee": "late writes of any client are refused by the database", "nextName": ""}]},
			{"version": "v2", "location": "mongo:dbc_v2", "kinds": [{
				"kind": "packages", "fixed": true, "physicalName": "packages.n1", "id": "b1", "fenceClass": "view",
				"fenceGuarantee": "late writes of any client are refused by the database", "nextName": ""}]}
		],
		"availableUpgrades": [{"targetVersion": "v2", "transformHash": "h1"}],
		"reverseSync": {"enabled": false, "reason": "no switch was made yet"},
		"progress": {
			"copied": "15", "total": "30", "rate": 2.5, "applied": "0", "parked": "0", "retries": "0",
			"verified": "0", "mismatched": "0", "lateDeletes": "0", "lastError": "", "reportingShards": 2,
			"waitsFor": ["shard 1: copy of 1 ranges", "shards 2, 3: a controller"]
		},
		"readiness": {
			"waitsFor": ["shard 1: copy of 1 ranges", "shards 2, 3: a controller"], "rollback": "", "at": "", "predictedMillis": {},
			"blockers": [
				{"code": "copying", "text": "shard 1: copy of 1 ranges", "resolve": "wait, or 'pace'", "shards": [1], "version": "", "kind": "", "controller": "", "server": ""},
				{"code": "no_controller", "text": "shards 2, 3: a controller", "resolve": "start a controller, or find out why none reaches etcd", "shards": [2, 3], "version": "", "kind": "", "controller": "", "server": ""}
			]
		},
		"servers": [{"id": "bbs-1", "protocol": 1, "versions": ["v1", "v2"], "activeVersion": "v1",
			"client": false, "acked": false, "held": 0, "restartMillis": 0, "since": "", "usage": [], "warnings": [], "copies": [], "moves": []}],
		"controllers": ["ctl/1"], "breaches": [], "confirm": "", "confirmLacks": "", "warnings": [], "unreadable": [], "restored": "", "region": "", "different": "", "views": "", "following": [], "historyDropped": "0"
	}`, revision), &want); err != nil {
		t.Fatal(err)
	}
	shards := got["progress"].(map[string]any)["shards"].([]any)
	delete(got["progress"].(map[string]any), "shards")
	if history := got["history"].([]any); len(history) != 1 || history[0].(map[string]any)["what"] != "upgrade" {
		t.Errorf("history %v", history)
	}
	delete(got, "history")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := shards[3].(map[string]any); len(shards) != 4 || s["state"] != "waiting" || s["waitsFor"] != "a controller" {
		t.Errorf("shards %v", shards)
	}
}

// TestListOfACorruptRecord: it is named, and hides no other deployment.
func TestListOfACorruptRecord(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, w)
	broken := deployment.New(w.Coord, other, deployment.Config{})
	if _, err := broken.Create(t.Context(), "v3", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Coord.Commit(t.Context(), nil, []coord.Op{{Key: broken.Root() + "/record", Value: []byte("{")}}); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Deployments []struct{ Name string }
		Unreadable  []struct{ Name, Reason string }
	}
	a.ok(t, "ListDeployments", `{}`, &list)
	if len(list.Deployments) != 1 || list.Deployments[0].Name != name || len(list.Unreadable) != 1 ||
		list.Unreadable[0].Name != other || !strings.Contains(list.Unreadable[0].Reason, "get "+other+": stored value is corrupt") {
		t.Errorf("%+v", list)
	}
}

// TestGetOfCorruptValues: a value next to the record that cannot be read is named, and the rest shown.
func TestGetOfCorruptValues(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, w)
	bad := deploymenttest.Key("progress/c-1")
	deploymenttest.Put(t, w.Coord, bad, "{")
	var got struct {
		CurrentVersion string
		Unreadable     []string
	}
	a.ok(t, "GetDeployment", `{}`, &got)
	if got.CurrentVersion != "v1" || len(got.Unreadable) != 1 || !strings.Contains(got.Unreadable[0], bad) {
		t.Errorf("%+v", got)
	}
}

func TestListAndCreate(t *testing.T) {
	t.Parallel()
	a := serve(t, deploymenttest.New(t))
	var created struct {
		Created    bool
		Deployment struct{ Name, CurrentVersion string }
	}
	a.ok(t, "CreateDeployment", `{"name": "`+other+`", "version": "v3"}`, &created)
	if !created.Created || created.Deployment.CurrentVersion != "v3" {
		t.Errorf("created %+v", created)
	}
	a.ok(t, "CreateDeployment", `{"name": "`+other+`", "version": "v4", "ringSize": 16}`, &created)
	if created.Created || created.Deployment.CurrentVersion != "v3" {
		t.Errorf("created again %+v", created)
	}
	var list struct{ Deployments []struct{ Name string } }
	a.ok(t, "ListDeployments", `{}`, &list)
	if len(list.Deployments) != 2 || list.Deployments[0].Name != name || list.Deployments[1].Name != other {
		t.Errorf("list %+v", list)
	}
	a.fails(t, "CreateDeployment", `{"name": "x", "version": "v1"}`, `invalid_argument: name "x": want services/{service}/deployments/{region}`)
	a.fails(t, "CreateDeployment", `{"name": "services/none/deployments/x"}`, `invalid_argument: version "": want the current version, such as v1`)
	a.ok(t, "CreateDeployment", `{}`, &created)
	if created.Created || created.Deployment.CurrentVersion != "v1" {
		t.Errorf("created again %+v", created)
	}
	a.ok(t, "CreateDeployment", `{"name": "services/none/deployments/x", "version": "v1", "dryRun": true}`, &created)
	if !created.Created {
		t.Errorf("a dry run says %+v", created)
	}
	a.fails(t, "CreateDeployment", `{"version": "v1", "ringSize": -1}`, `invalid_argument: ring_size "-1": want a number from 1 to 1024, or 0 for the default`)
	a.fails(t, "CreateDeployment", `{"name": "services/none/deployments/x", "version": "v1", "ringSize": 2147483647}`, `invalid_argument: ring_size "2147483647": want a number from 1 to 1024, or 0 for the default`)
	a.fails(t, "CreateDeployment", `{"version": "v1", "ringSize": 8}`, `failed_precondition: create: `+name+` has a ring of 4 already, and it cannot change to 8`)
	a.fails(t, "GetDeployment", `{"name": "services/none/deployments/x"}`, `not_found: services/none/deployments/x: deployment does not exist`)
	a.fails(t, "GetDeployment", `{"timeoutMs": 400000}`, `invalid_argument: timeout_ms "400000": want 0 to 300000, or 0 for 30000`)
	status, answer, err := a.call(t.Context(), "GetDeployment", `{"nmae": "x"}`)
	if err != nil || status != http.StatusBadRequest || !strings.Contains(string(answer), "nmae") {
		t.Errorf("misspelt: %d %s %v", status, answer, err)
	}
}

func TestBeginAndAbort(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, w)
	a.fails(t, "BeginUpgrade", `{}`, `invalid_argument: target_version "": want the version to move to, such as v2`)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v2", "totalShardsCount": -1}`, `invalid_argument: total_shards_count "-1": want the ring size, or 0 to leave it out`)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v2"}`, `failed_precondition: begin-upgrade: unknown version "v2": known are v1; a version becomes known when a controller configured with it runs`)
	a.fails(t, "BeginUpgrade", `{"name": "services/none/deployments/x", "targetVersion": "v2"}`, `not_found: services/none/deployments/x: deployment does not exist`)
	a.fails(t, "AbortUpgrade", `{}`, `failed_precondition: abort: no upgrade is running`)
	w.WithVersions(t)
	w.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: "v9", Kinds: []upgradestate.Kind{{Kind: "x", Physical: "x.n1", ID: "c"}}}})
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v9"}`, `failed_precondition: begin-upgrade: no way from v1 to v9 is configured`)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1"}`, `failed_precondition: begin-upgrade: already at version v1`)
	w.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: "v8", Kinds: []upgradestate.Kind{{Kind: "x", Physical: "x.n1", ID: "c"}}}})
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v8"}`, `failed_precondition: begin-upgrade: no controller offers an upgrade to v8 yet: start one that knows v1 and v8`)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v2", "totalShardsCount": 5}`, `failed_precondition: begin-upgrade: wrong shard count 5: this deployment has a ring of 4; give --total-shards-count 4 or leave it out`)

	l := deploymenttest.Lease(t, w.Coord)
	old := deploymenttest.Server("old")
	old.Protocol = 0
	if err := w.Store.Register(t.Context(), l, old); err != nil {
		t.Fatal(err)
	}
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v2"}`, `failed_precondition: begin-upgrade: servers too old for v2: old speaks protocol 0, but 1 is needed; update or stop them`)
	w.Coord.Expire(l.ID())

	type status struct {
		CurrentVersion string
		UpgradeState   *struct{ ID, TargetVersion, State, TransformHash string }
	}
	var first, again, aborted status
	a.ok(t, "BeginUpgrade", `{"targetVersion": "v2", "totalShardsCount": 4}`, &first)
	if u := first.UpgradeState; u == nil || u.TargetVersion != "v2" || u.State != "INITIAL_SYNCING" || u.TransformHash != "h1" {
		t.Fatalf("begun %+v", u)
	}
	a.ok(t, "BeginUpgrade", `{"targetVersion": "v2"}`, &again)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("repeated (-first +again):\n%s", diff)
	}
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v9"}`, `failed_precondition: begin-upgrade: no way from v1 to v9 is configured`)
	a.fails(t, "AbortUpgrade", `{"upgradeId": "u-x"}`, `failed_precondition: abort: u-x is not running, `+first.UpgradeState.ID+` is`)
	a.fails(t, "AbortUpgrade", `{"reason": "`+strings.Repeat("x", 501)+`"}`, `invalid_argument: reason "xxxxxxxxxxxxxxxxxxxx...": want at most 500 bytes`)
	a.ok(t, "AbortUpgrade", `{"upgradeId": "`+first.UpgradeState.ID+`"}`, &aborted)
	if aborted.UpgradeState != nil || aborted.CurrentVersion != "v1" {
		t.Errorf("aborted %+v", aborted)
	}
	// The answer was lost, and the operator repeats it.
	a.ok(t, "AbortUpgrade", `{"upgradeId": "`+first.UpgradeState.ID+`"}`, &aborted)

	a.ok(t, "CreateDeployment", `{"name": "`+other+`", "version": "v1"}`, &struct{}{})
	o := deploymenttest.World{Coord: w.Coord, Store: deployment.New(w.Coord, other, deployment.Config{})}
	o.WithVersions(t)
	a.fails(t, "BeginUpgrade", `{"name": "`+other+`", "targetVersion": "v2"}`, `failed_precondition: begin-upgrade: this controller is not configured for `+other+`: ask a controller that is`)
}

func TestAfterTheSwitch(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Flip(t)
	a := serve(t, w)
	var got struct {
		CurrentVersion    string
		Epoch             string
		AvailableUpgrades []struct{}
		LastSwitch        map[string]any
		UpgradeState      any
	}
	a.ok(t, "GetDeployment", `{"name": "`+name+`"}`, &got)
	if got.CurrentVersion != "v2" || got.Epoch != "2" || got.UpgradeState != nil || len(got.AvailableUpgrades) != 0 {
		t.Errorf("got %+v", got)
	}
	want := map[string]any{"id": "u1", "fromVersion": "v1", "toVersion": "v2", "at": "2026-01-02T03:04:05Z", "back": false, "snapshot": false,
		"millis": map[string]any{"hold": 3.0, "flip": 2.0}, "pauseMillis": 5.0}
	if diff := cmp.Diff(want, got.LastSwitch); diff != "" {
		t.Errorf("last switch (-want +got):\n%s", diff)
	}
	a.fails(t, "AbortUpgrade", `{}`, `failed_precondition: abort: no upgrade is running; u1 switched to v2 already, and abort cannot undo that`)
	a.fails(t, "BeginUpgrade", `{"targetVersion": "v1"}`, `failed_precondition: begin-upgrade: there is no rollback from v2 to v1: v1 does not follow yet: a controller announces it within seconds after a switch, so retry; if this does not help, its entry in dbs is disabled or missing, or no controller runs; 'rollback --to-snapshot' returns without the later writes`)
}

// announcing is asked for a transformation, and the upgrade is announced meanwhile.
type announcing struct{ announce func() }

func (a announcing) TransformHash(string, string) (string, error) {
	a.announce()
	return "h2", nil
}

// TestRollbackAwaitsItsAnnouncement: a rollback that is typed right after a switch is not refused
// because no controller has announced yet that the version which was left follows.
func TestRollbackAwaitsItsAnnouncement(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Flip(t)
	once := sync.OnceFunc(func() {
		w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h2"}})
	})
	a := serveWith(t, w, api.Config{Upgrades: announcing{once}})
	var got struct {
		UpgradeState *struct{ TargetVersion string }
	}
	a.ok(t, "BeginUpgrade", `{"targetVersion": "v1"}`, &got)
	if got.UpgradeState == nil || got.UpgradeState.TargetVersion != "v1" {
		t.Errorf("got %+v", got)
	}
}

func TestParkedThroughTheAPI(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	for i := range 2 {
		if err := w.Store.Park(t.Context(), deploymenttest.Parked(dir, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	a := serve(t, w)
	var list struct {
		Parked []struct {
			Kind, Key, Version, Error, Direction string
			Shard                                int
			Waived, Overflow                     bool
		}
	}
	a.ok(t, "WaiveParked", `{"kind": "packages", "key": "p-1"}`, &struct{}{})
	a.ok(t, "ListParked", `{}`, &list)
	if len(list.Parked) != 2 || list.Parked[0].Waived || !list.Parked[1].Waived ||
		list.Parked[1].Key != "p-1" || list.Parked[1].Error != "no such field" || list.Parked[1].Direction != string(dir) {
		t.Errorf("list %+v", list)
	}
	a.fails(t, "WaiveParked", `{"kind": "packages", "key": "p-7"}`, `not_found: packages/p-7 is not parked: parked are packages/p-0, packages/p-1`)
	a.fails(t, "WaiveParked", `{"key": "p-7"}`, `invalid_argument: kind "": want the kind of a parked record from ListParked`)
	a.fails(t, "WaiveParked", `{"kind": "packages"}`, `invalid_argument: key "": want the key of a parked record from ListParked`)
}

func TestStoreIsLost(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, w)
	deploymenttest.Put(t, w.Coord, deploymenttest.Key("record"), `{"format": 99}`)
	a.fails(t, "GetDeployment", `{}`, `failed_precondition: get `+name+`: record has a newer format: 99, this binary knows 1`)
	deploymenttest.Put(t, w.Coord, deploymenttest.Key("record"), `{}`)
	a.fails(t, "GetDeployment", `{}`, `data_loss: get `+name+`: stored value is corrupt: record format 0: this is no deployment`)
}
