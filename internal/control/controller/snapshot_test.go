package controller

import (
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestCopies: what a switch to a snapshot has left is not synced before somebody begins an
// upgrade to it; the rollback of any other switch is kept, whatever is configured.
func TestCopies(t *testing.T) {
	t.Parallel()
	snapshot := &upgradestate.Switch{From: "v2", To: "v1", Snapshot: true}
	for _, tc := range []struct {
		name string
		auto bool
		last *upgradestate.Switch
		to   string
		want bool
	}{
		{"forward, by itself", true, nil, "v2", true},
		{"forward, when it is begun", false, nil, "v2", false},
		{"the rollback", false, &upgradestate.Switch{From: "v1", To: "v2"}, "v1", true},
		{"what a snapshot has left", true, snapshot, "v2", false},
		{"what an epoch without a switch has left", true, &upgradestate.Switch{From: "v2", To: "v1", Outdated: true}, "v2", false},
		{"past what a snapshot has left", true, snapshot, "v3", true},
	} {
		a := App{cfg: Settings{Copy: Copy{Auto: tc.auto}}}
		if got := a.copies(upgradestate.Deployment{CurrentVersion: "v1", LastSwitch: tc.last}, tc.to); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
