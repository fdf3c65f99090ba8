package deployment_test

import (
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/syncer"
)

// TestUnparkOfAnother: a controller that took a shard over removes what the one before it
// parked, before it has parked or listed anything itself.
func TestUnparkOfAnother(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	parked := syncer.Parked{Direction: syncer.KeyOf(1, "v1", "v2", "h1", 0), Shard: 1, Kind: "packages", Group: "cDE", Key: "p1", Version: "a", Error: "no int"}
	if err := w.Store.Park(t.Context(), parked); err != nil {
		t.Fatal(err)
	}
	other := deployment.New(w.Coord, name, deployment.Config{})
	if err := other.Unpark(t.Context(), parked); err != nil {
		t.Fatal(err)
	}
	if left, err := other.Parked(t.Context(), parked.Direction, 1); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
