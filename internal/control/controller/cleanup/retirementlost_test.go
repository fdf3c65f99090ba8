package cleanup

import (
	"testing"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/upgradestate"
)

// TestRetireOfALostDatabase: a retirement waits for a database that does not answer, and ends without
// it once an operator has declared it lost.
func TestRetireOfALostDatabase(t *testing.T) {
	t.Parallel()
	rt, old, _, d := retiring(t, "")
	if err := rt.Lacks(t.Context(), d, "v1"); err != nil {
		t.Errorf("a database that answers: %v", err)
	}
	rt.Namespaces["v1"] = faultstore.Wrap(old, faultstore.InjectorFunc(func(faultstore.Op) faultstore.Fault { return faultstore.Down() }))
	if err := rt.retireVersion(t.Context(), d, *d.Retire); err == nil {
		t.Error("it ended without the database")
	}
	if err := rt.Lacks(t.Context(), d, "v1"); err == nil {
		t.Error("nothing is said against a database that does not answer")
	}
	rt.Namespaces["v1"] = nil // its entry is gone from dbs as well
	if err := rt.Lacks(t.Context(), d, "v1"); err == nil {
		t.Error("nothing is said against a database that is not configured")
	}
	d, err := rt.Deployments.Apply(t.Context(), upgradestate.Complete{Version: "v1", Lost: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.retireVersion(t.Context(), d, *d.Retire); err != nil {
		t.Fatal(err)
	}
	if d, err = rt.Deployments.Get(t.Context()); err != nil || d.Retire != nil || !upgradestate.Retired(d, "v1") || len(d.Namespaces) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}
