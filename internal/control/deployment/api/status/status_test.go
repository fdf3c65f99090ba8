package status_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

func TestStatusOfTheCopy(t *testing.T) {
	t.Parallel()
	two := func(a, b syncer.Progress) []syncer.Progress { b.Shard = 1; return []syncer.Progress{a, b} }
	seconds := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		name   string
		shards []syncer.Progress
		eta    *int64
		lag    *int64 // nil: not known
		of     int32  // shards that report
		parked int64
		err    string
		waits  []string
	}{
		{"nobody copies yet", nil, nil, nil, 0, 0, "", nil},
		{"one does not report", []syncer.Progress{{Copied: 1, Total: 2, Rate: 1, LagMillis: new(int64(5))}}, nil, nil, 1, 0, "", []string{"shard 1: a controller"}},
		{"copying", two(syncer.Progress{Copied: 10, Total: 100, Rate: 20}, syncer.Progress{Copied: 100, Total: 200, Rate: 40}), seconds(4), nil, 2, 0, "", nil},
		{"stalled", two(syncer.Progress{Copied: 10, Total: 100}, syncer.Progress{Copied: 100, Total: 100}), nil, nil, 2, 0, "", nil},
		{"copied", two(syncer.Progress{Copied: 100, Total: 100, LagMillis: new(int64(0))}, syncer.Progress{LagMillis: new(int64(0))}), seconds(0), new(int64(0)), 2, 0, "", nil},
		{"one has not heard of its source", two(syncer.Progress{LagMillis: new(int64(7))}, syncer.Progress{}), seconds(0), nil, 2, 0, "", nil},
		{"behind", two(syncer.Progress{LagMillis: new(int64(7)), Parked: 1}, syncer.Progress{LagMillis: new(int64(30)), Parked: 2, LastError: "no primary"}), seconds(0), new(int64(30)), 2, 3, "shard 1: no primary", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := upgradestate.New(name, "v1", 2)
			d.Available = []upgradestate.Available{{TargetVersion: "v2", TransformHash: "h", Precopied: true}}
			p := status.Of(deployment.State{Record: d, Progress: tc.shards, Controllers: []string{"c"}}, status.Process{}).Progress
			if diff := cmp.Diff(tc.eta, p.EtaSeconds); diff != "" {
				t.Errorf("eta (-want +got):\n%s", diff)
			}
			if !cmp.Equal(p.MaxLagMillis, tc.lag) || p.ReportingShards != tc.of || p.Parked != tc.parked || p.LastError != tc.err || len(p.Shards) != 2 {
				t.Errorf("got %v", p)
			}
			if diff := cmp.Diff(tc.waits, p.WaitsFor); diff != "" {
				t.Errorf("waits for (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatusOfADirectionThatEnded: what shards reported last is no news once nothing follows.
func TestStatusOfADirectionThatEnded(t *testing.T) {
	t.Parallel()
	p := status.Of(deployment.State{
		Record: upgradestate.New(name, "v1", 1), Controllers: []string{"c"},
		Progress: []syncer.Progress{{Copied: 5, Total: 5, Parked: 2, LagMillis: new(int64(4)), WaitsFor: "the switch"}},
	}, status.Process{}).Progress
	if p.Parked != 0 || p.Total != 0 || p.MaxLagMillis != nil || len(p.WaitsFor) != 0 {
		t.Errorf("got %v", p)
	}
}

// TestStatusOfAnApplication: it never says in which version it writes.
func TestStatusOfAnApplication(t *testing.T) {
	t.Parallel()
	d := status.Of(deployment.State{
		Record:  upgradestate.New(name, "v2", 1),
		Servers: []upgradestate.ServerState{{ID: "client-x", Client: true, Active: "v1"}, {ID: "s", Active: "v2"}},
	}, status.Process{})
	if a, s := d.Servers[0].ActiveVersion, d.Servers[1].ActiveVersion; a != "" || s != "v2" {
		t.Errorf("application %q, server %q", a, s)
	}
}

// TestPaceNow is about now: neither a pause that the pace says already, nor one that has ended.
func TestPaceNow(t *testing.T) {
	t.Parallel()
	for paused, want := range map[bool]string{true: "", false: "limited to 5 records a second"} {
		d := upgradestate.New(name, "v1", 2)
		d.Available = []upgradestate.Available{{TargetVersion: "v2", TransformHash: "h", Precopied: true}}
		d.Pace.Paused = paused
		now := status.Of(deployment.State{Record: d, Progress: []syncer.Progress{
			{Shard: 0, Pace: "paused: backup"}, {Shard: 1, Pace: "limited to 5 records a second"},
		}}, status.Process{}).Pace.Now
		if got := strings.Join(now, "; "); got != want {
			t.Errorf("paused %t: %q, want %q", paused, got, want)
		}
	}
}

func TestStatusSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	hold := w.Switching(t)
	fence := w.Apply(t, upgradestate.Held{ID: "u1"})
	all := []syncer.Progress{
		{Shard: 0}, {Shard: 1, WaitsFor: "the switch"}, {Shard: 2, WaitsFor: "x"}, {Shard: 3, WaitsFor: "the switch"},
	}
	acked, other := deploymenttest.Server("a"), deploymenttest.Server("b")
	acked.AckID, acked.AckAttempt = "u1", hold.Upgrade.Attempt
	other.AckID, other.AckAttempt = "u1", hold.Upgrade.Attempt-1
	many := []upgradestate.ServerState{acked}
	for i := range 6 {
		many = append(many, deploymenttest.Server(fmt.Sprintf("s%d", i+1)))
	}
	flipped := upgradestate.New(name, "v2", len(all)) // v1 follows: as copied in advance
	flipped.Available = []upgradestate.Available{{TargetVersion: "v3", TransformHash: "h", Precopied: true}}
	for _, tc := range []struct {
		name  string
		state deployment.State
		want  []string
	}{
		{
			"hold",
			deployment.State{
				Record: hold, Progress: all, Controllers: []string{"c"},
				Servers: []upgradestate.ServerState{acked, other},
			},
			[]string{"1 of 2 servers and applications to hold their writes: b", "shards 1, 3: the switch", "shard 2: x"},
		},
		{
			"hold with many who are late",
			deployment.State{Record: hold, Progress: all, Controllers: []string{"c"}, Servers: many},
			[]string{"6 of 7 servers and applications to hold their writes: s1, s2, s3, s4, s5, ...", "shards 1, 3: the switch", "shard 2: x"},
		},
		{
			"flipped, and no shard has said anything since",
			deployment.State{Record: flipped, Progress: all, Controllers: []string{"c"}},
			[]string{"shard 2: x"},
		},
		{
			"fence without a controller",
			deployment.State{Record: fence, Servers: []upgradestate.ServerState{other}},
			[]string{"a controller: none is running", "fence of packages (v1) from packages to packages.n1 to be confirmed", "all shards: a controller"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := status.Of(tc.state, status.Process{})
			if diff := cmp.Diff(tc.want, got.Progress.WaitsFor); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, s := range got.Servers {
				if s.Acked != (s.Id == "a") {
					t.Errorf("server %s acked: %t", s.Id, s.Acked)
				}
			}
		})
	}
}
