package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
)

// TestFollowing: an answer has the updates that this process knows and those that have begun, each
// once.
func TestFollowing(t *testing.T) {
	t.Parallel()
	const places = "services/places/deployments/eu"
	r := upgradestate.Deployment{
		CurrentVersion: "v1", Update: &upgradestate.Update{ID: "d2", Name: "old"},
		Following: []upgradestate.Following{
			{Task: "new", Deployment: places, Version: "v2", Switch: "u1", Run: "d1", Passes: 2, Changed: 7, Failed: 1, Outcome: "not done", Again: true},
			{Task: "old", Deployment: places, Version: "v1", Switch: "u2", Run: "d2", Passes: 1},
			{Task: "moved", Deployment: places, Version: "v1", Switch: "u2", Run: "d3", Passes: 1, Outcome: "done"},
		},
	}
	known := []*pb.Following{
		{Task: "never", Deployment: places, Version: "v2", WaitsFor: "a switch"},
		{Task: "new", Deployment: places, Version: "v2", WaitsFor: "the end of data update old"},
		{Task: "moved", Deployment: "services/other/deployments/eu", Version: "v2"},
	}
	began := &pb.Following{Task: "new", Deployment: places, Version: "v2", SwitchId: "u1", Passes: 2, Changed: 7, Failed: 1, Outcome: "not done", Again: true}
	running := &pb.Following{Task: "old", Deployment: places, Version: "v1", SwitchId: "u2", Passes: 1, Running: true}
	alone := []*pb.Following{began, running, {Task: "moved", Deployment: places, Version: "v1", SwitchId: "u2", Passes: 1, Outcome: "done"}}
	if diff := cmp.Diff(alone, OfRecord(r).GetFollowing(), protocmp.Transform()); diff != "" {
		t.Errorf("of the record (-want +got):\n%s", diff)
	}
	waits := &pb.Following{Task: "new", Deployment: places, Version: "v2", SwitchId: "u1", Passes: 2, Changed: 7, Failed: 1, Outcome: "not done", Again: true, WaitsFor: "the end of data update old"}
	all := []*pb.Following{known[0], waits, known[2], running}
	if diff := cmp.Diff(all, Of(deployment.State{Record: r}, Process{Following: known}).GetFollowing(), protocmp.Transform()); diff != "" {
		t.Errorf("of the process (-want +got):\n%s", diff)
	}
	if known[1].GetPasses() != 0 {
		t.Error("the process's own values were changed")
	}
}
