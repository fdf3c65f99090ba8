package cleanup

import (
	"context"
	"errors"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestRetireOfALostDatabase: a retirement waits for a database that does not answer, and ends without
// it once an operator has declared it lost.
func TestRetireOfALostDatabase(t *testing.T) {
	t.Parallel()
	rt, old, _, d := retiring(t, "")
	if _, err := rt.Lacks(t.Context(), d, "v1"); err != nil {
		t.Errorf("a database that answers: %v", err)
	}
	rt.Namespaces["v1"] = faultstore.Wrap(old, faultstore.InjectorFunc(func(faultstore.Op) faultstore.Fault { return faultstore.Down() }))
	if err := rt.retireVersion(t.Context(), d, *d.Retire); err == nil {
		t.Error("it ended without the database")
	}
	if gone, err := rt.Lacks(t.Context(), d, "v1"); err == nil || !gone {
		t.Errorf("a database that does not answer: %v, gone %t", err, gone)
	}
	rt.Namespaces["v1"] = nil // its entry is gone from dbs as well
	if gone, err := rt.Lacks(t.Context(), d, "v1"); err == nil || !gone {
		t.Errorf("a database that is not configured: %v, gone %t", err, gone)
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

// answers is a database whose Identity fails with err.
type answers struct {
	record.Namespace
	err     error
	refused bool
}

func (a answers) Identity(context.Context) (record.Identity, error) { return record.Identity{}, a.err }
func (a answers) Refused(error) bool                                { return a.refused }

// TestLacksTellsALostDatabase: only a database that is gone can be declared lost.
func TestLacksTellsALostDatabase(t *testing.T) {
	t.Parallel()
	rt, old, _, d := retiring(t, "")
	for name, tc := range map[string]struct {
		err     error
		refused bool
		gone    bool
	}{
		"a refused login":      {errors.New("login refused"), true, false},
		"silence":              {errors.New("no answer"), false, true},
		"a dropped database":   {&identity.MismatchError{Found: "nothing there", Lost: true}, false, true},
		"a dropped one, shut":  {&identity.MismatchError{Found: "nothing there", Lost: true}, true, true},
		"another one's":        {&identity.MismatchError{Found: "another one"}, false, false},
		"with an outdated one": {&identity.MismatchError{Found: "outdated"}, true, false},
	} {
		rt.Namespaces["v1"] = answers{old, tc.err, tc.refused}
		if gone, err := rt.Lacks(t.Context(), d, "v1"); !errors.Is(err, tc.err) || gone != tc.gone {
			t.Errorf("%s: %v, gone %t", name, err, gone)
		}
	}
}
