package identity_test

import (
	"errors"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestEpochWithoutASwitch: a restore of the served version begins an epoch, and the marks follow later.
// A process that looks in between finds both databases in order. One from before the latest switch is
// still a backup.
func TestEpochWithoutASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	before := w.db["v2"].Cluster().Backup(func() {})
	noted := map[string]bool{}
	w.apply(upgradestate.Begin{ID: "first", TargetVersion: "v2", TransformHash: "h"})
	for w.step(noted) != "" {
	}
	w.ok(w.keeper().Keep(t.Context(), w.d))
	epoch := w.d.Epoch
	w.apply(upgradestate.FoundRestored{Restored: upgradestate.Restored{Version: "v2", What: "older"}, Epoch: epoch})
	if w.d.Epoch == epoch {
		t.Fatal("no epoch has begun")
	}
	w.ok(identity.Check(t.Context(), w, w.markers()))
	w.db["v2"].Cluster().Restore(before, func() {})
	var mismatch *identity.MismatchError
	if err := identity.Check(t.Context(), w, w.markers()); !errors.As(err, &mismatch) {
		t.Errorf("a database from before the switch: %v", err)
	}
}
