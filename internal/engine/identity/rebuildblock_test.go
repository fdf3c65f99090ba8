package identity_test

import (
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestRebuildSealsAWriteBlock: nothing in the database shows which mark of a write block stands. A
// seal may have died after it ended the one that the recovered record knows.
func TestRebuildSealsAWriteBlock(t *testing.T) {
	w := newWorldWith(t, memstore.Options{FixedFence: record.FenceView}, map[string]record.FenceClass{"v1": record.FenceWriteBlock})
	noted := map[string]bool{}
	w.apply(upgradestate.Begin{ID: "first", TargetVersion: "v2", TransformHash: "h"})
	for w.step(noted) != "" {
	}
	behind := func() upgradestate.Kind {
		t.Helper()
		ns, _ := w.d.Namespace("v1")
		k, ok := ns.Kind("packages")
		if !ok {
			t.Fatalf("no kind: %+v", w.d)
		}
		return k
	}
	before := behind()
	if before.Mark() == "" || w.d.CurrentVersion != "v2" {
		t.Fatalf("%s is current, and v1 is %+v", w.d.CurrentVersion, before)
	}
	e, err := identity.Gather(t.Context(), deploymentName, w.markers())
	w.ok(err)
	w.d, _, err = e.Rebuild("v2")
	w.ok(err)
	if p := behind().Pending; p == nil || p.Reason != upgradestate.PendingSeal {
		t.Fatalf("a recovered kind behind a write block has no seal: %+v", behind())
	}
	for w.step(noted) != "" {
	}
	if k := behind(); k.Pending != nil || k.Mark() == before.Mark() || k.Mark() == "" {
		t.Errorf("the kind has the mark %q, and had %q: %+v", k.Mark(), before.Mark(), k)
	}
}
