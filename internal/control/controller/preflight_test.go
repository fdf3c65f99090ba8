package controller

import "testing"

// TestKept: a version that is left is kept in sync as long as it is configured and not disabled.
func TestKept(t *testing.T) {
	t.Parallel()
	a := App{cfg: Settings{Databases: []Database{{Version: "v1"}, {Version: "v2", Disabled: true}}}}
	for version, want := range map[string]bool{"v1": true, "v2": false, "v3": false} {
		if got := a.proofs().Kept(version); got != want {
			t.Errorf("%s is kept: %t", version, got)
		}
	}
}
