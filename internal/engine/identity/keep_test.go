package identity_test

import (
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestAbortRightAfterASwitch: a rollback begins, and is aborted, before any controller has looked at
// the record at rest since the switch. The mark still has that switch, which is over.
func TestAbortRightAfterASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	noted := map[string]bool{}
	w.apply(upgradestate.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h"})
	for w.d.CurrentVersion == "v1" {
		w.step(noted)
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h"}})
	w.apply(upgradestate.Begin{ID: "u2", TargetVersion: "v1", TransformHash: "h"})
	for w.d.Upgrade.Step != upgradestate.StepHold {
		w.step(noted)
	}
	w.apply(upgradestate.Abort{ID: "u2", Reason: "a test"})
	for w.d.Upgrade != nil {
		w.step(noted)
	}
	w.ok(w.check())
}
