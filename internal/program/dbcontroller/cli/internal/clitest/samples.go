// Package clitest has what tests of several commands share: goldens and sample deployments.
package clitest

import (
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// Sample is a deployment in the middle of an upgrade, with something in every field that
// is shown.
func Sample() *dbv1.Deployment {
	eta := int64(75)
	d := &dbv1.Deployment{
		Name: "services/bbs.example.com/deployments/us-west2", CurrentVersion: "v1", Epoch: 1, RingSize: 4, Revision: 90,
		UpgradeState: &dbv1.UpgradeState{
			TargetVersion: "v2", ReadyShards: []int32{0, 2}, PendingShards: []int32{1, 3},
			State: dbv1.UpgradeState_INITIAL_SYNCING, Id: "up-1", Attempt: 1, TransformHash: "0123456789abcdef",
			Policy: &dbv1.SwitchPolicy{Hold: true, DeadlineMs: 5000, MaxPauseMs: 200},
		},
		Pace: &dbv1.Pace{
			Paused: true, Reason: "backup", MaxRate: 2000, MaxSourceLoad: 60, Window: "22:00-05:00", Now: []string{"paused", "source load 72 %"},
		},
		Readiness: &dbv1.SwitchReadiness{
			WaitsFor: []string{"'resume': paused: backup", "'switch': this upgrade holds at ready", "shard 1: copy of 2 ranges", "the build of index n_1"},
			Blockers: []*dbv1.SwitchBlocker{
				{Code: "paused", Text: "'resume': paused: backup", Resolve: "'resume'"},
				{Code: "held", Text: "'switch': this upgrade holds at ready", Resolve: "'switch'"},
				{Code: "copying", Text: "shard 1: copy of 2 ranges", Resolve: "wait, or 'pace'", Shards: []int32{1}},
				{Code: "hindrance", Text: "the build of index n_1", Resolve: "wait until it ends", Version: "v1", Kind: "packages"},
			},
			Rollback: "proved for 5,000 records",
		},
		Update: &dbv1.DataUpdate{Id: "d-1", Name: "fill-region", Version: "v1", Kind: "packages", DoneShards: 2, Seen: 9000, Changed: 120},
		History: []*dbv1.HistoryEntry{
			{At: "2026-11-20T22:00:00.5Z", By: "ann@desk", What: "upgrade", Id: "up-0", From: "v1", To: "v2", Detail: "switch when ready",
				Phases: []*dbv1.PhaseTime{
					{Phase: "INITIAL_SYNCING", At: "2026-11-20T22:00:00.5Z"}, {Phase: "READY", At: "2026-11-20T22:10:00Z"},
					{Phase: "HOLD", At: "2026-11-20T22:10:00.2Z"}, {Phase: "ABORT", At: "2026-11-20T22:10:10.2Z"},
				}, Outcome: "aborted: SWITCHING passed its deadline", Ended: "2026-11-20T22:10:10.3Z"},
			{At: "2026-11-21T08:00:00Z", By: "bob@laptop", What: "pause", Detail: "backup"},
			{At: "2026-11-21T08:01:00Z", By: "bob@laptop", What: "upgrade", Id: "up-1", From: "v1", To: "v2", Detail: "hold at ready",
				Phases: []*dbv1.PhaseTime{{Phase: "INITIAL_SYNCING", At: "2026-11-21T08:01:00Z"}}},
		},
		Namespaces: []*dbv1.Namespace{
			{Version: "v1", Location: "mongo:dbc_bbs_v1", Kinds: []*dbv1.Kind{
				{Kind: "desired_lrps", PhysicalName: "desired_lrps.n0", FenceClass: "uuid", FenceGuarantee: "late writes of any kind fail"},
				{Kind: "packages", Fixed: true, PhysicalName: "packages", FenceClass: "validator", FenceGuarantee: "late deletes pass; they are reported"},
			}},
			{Version: "v2", Location: "mongo:dbc_bbs_v2", Kinds: []*dbv1.Kind{
				{Kind: "packages", Fixed: true, PhysicalName: "packages.n0", NextName: "packages.n1", FenceClass: "validator", FenceGuarantee: "late deletes pass; they are reported"},
			}},
		},
		ReverseSync: &dbv1.ReverseSync{Reason: "no switch was made yet"},
		Progress: &dbv1.Progress{
			Copied: 15000, Total: 20000, Rate: 1234.5, EtaSeconds: &eta, MaxLagMillis: new(int64(1520)), ReportingShards: 4, Verified: 8000, Mismatched: 1, Parked: 2,
			LateDeletes: 3, WaitsFor: []string{"shard 1: copy of 2 ranges", "shard 3: changes that are not applied"},
			LastError: "shard 3: apply changes: connection reset",
		},
		Servers: []*dbv1.Server{
			{Id: "server-1", Versions: []string{"v1", "v2"}, ActiveVersion: "v1", Since: "2026-11-21T07:00:00Z",
				Usage: []*dbv1.VersionUsage{{Version: "v1", Calls: 12345, Last: "2026-11-21T08:00:00Z"}, {Version: "v2"}}},
			{Id: "client-billing-7", ActiveVersion: "v1", Client: true, Acked: true},
		},
		Controllers: []string{"controller-1", "controller-2"},
	}
	for i, state := range []string{"ready", "copying", "ready", "following"} {
		s := &dbv1.ShardProgress{Shard: int32(i), Owner: "controller-1", State: state, Copied: 5000, Total: 5000, LagMillis: new(int64(12)), Applied: 321}
		switch state {
		case "copying":
			s.Copied, s.Rate, s.WaitsFor = 1500, 1234, "copy of 2 ranges"
		case "following":
			s.LagMillis, s.WaitsFor = new(int64(1520)), "changes that are not applied"
		}
		d.Progress.Shards = append(d.Progress.Shards, s)
	}
	return d
}

// Switched is the deployment afterwards.
func Switched() *dbv1.Deployment {
	d := Sample()
	d.CurrentVersion, d.Epoch, d.UpgradeState, d.Progress = "v2", 2, nil, nil
	d.Pace, d.Readiness, d.Update = &dbv1.Pace{}, nil, nil
	d.RollbackSafe = &dbv1.RollbackSafe{Blocking: 2, Waived: 1, Reason: "2 records cannot be migrated back to v1: see 'parked', fix or waive them"}
	d.FormerNames = &dbv1.FormerNames{Unknown: "grant inprog", Uses: []*dbv1.NameUse{
		{Version: "v1", Kind: "packages", Reads: 1234, Writes: 5, Last: "2026-11-21T08:00:00Z", Users: []*dbv1.NameUser{{Application: "shop", Driver: "nodejs 6.3", Address: "10.0.0.7"}, {}}},
		{Version: "v1", Kind: "orders", Writes: 1, Last: "2026-11-21T08:00:00Z"},
	}}
	d.Retiring, d.Retired = "v0", []string{"v00", "v01"}
	d.Kept = []*dbv1.KeptNamespace{{Version: "v01", Location: "mongo:bbs_v01", Until: "2026-01-02T03:04:05Z", Collections: []string{"dbc_retired.v01.lrps.n2"}}}
	d.LastSwitch = &dbv1.LastSwitch{
		Id: "up-1", FromVersion: "v1", ToVersion: "v2", At: "2026-11-21T02:00:00Z",
		Millis: map[string]int32{"hold": 40, "fence": 30, "drain": 20, "flip": 60}, PauseMillis: 150,
	}
	return d
}
