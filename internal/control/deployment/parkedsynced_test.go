package deployment_test

import (
	"testing"

	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TestParkedOfWhatIsSynced: of several upgrades that are possible, what is parked on the way
// to one counts while that one is synced to.
func TestParkedOfWhatIsSynced(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v3@b", Location: "mongodb://db:27017/dbc_v3",
		Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: "packages.n1", ID: "c1", Fence: "view"}},
	}})
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v3@b", TransformHash: "h3"}})
	for _, p := range []syncer.Parked{deploymenttest.Parked("1-v1-v2-h1", 0, 1), deploymenttest.Parked("1-v1-v3@b-h3", 0, 2)} {
		if err := w.Store.Park(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	keys := func(when, want string) {
		t.Helper()
		list, err := w.Store.ParkedNow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range list {
			got += p.Key + " "
		}
		if got != want {
			t.Errorf("%s: parked are %q, want %q", when, got, want)
		}
	}
	keys("ahead of any upgrade", "p-1 ")
	w.Apply(t, upgradestate.Begin{ID: "u1", TargetVersion: "v3@b"})
	keys("upgrade to another one", "p-2 ")
	w.Apply(t, upgradestate.Abort{ID: "u1"})
	keys("after its abort", "p-1 ")
	w.Apply(t, upgradestate.WithdrawAvailable{TargetVersion: "v2"})
	keys("withdrawn", "")
}
