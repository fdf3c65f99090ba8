package collections

import (
	"context"
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// named is a database in which something stands under the name that is asked for.
type named struct {
	Database
	info record.Info
	err  error
}

func (n named) Describe(context.Context, record.KindSpec, string) (record.Info, error) {
	return n.info, n.err
}

// TestCheckNames: the name that the target takes at the flip is free, or bears the view that
// the fence of an earlier switch left. Any other view would stop the service behind the flip.
func TestCheckNames(t *testing.T) {
	t.Parallel()
	view := func(fence bool) error {
		return &record.UnsupportedError{What: "orders", Reason: "a view", Fence: fence}
	}
	for name, tc := range map[string]struct {
		there named
		kind  upgradestate.Kind
		want  string
	}{
		"free":             {named{}, upgradestate.Kind{}, ""},
		"a collection":     {named{info: record.Info{Exists: true}}, upgradestate.Kind{}, "a collection orders exists in the database of v2 already"},
		"its fence":        {named{err: view(true)}, upgradestate.Kind{Fence: "view", Fenced: "orders.n1"}, ""},
		"a foreign fence":  {named{err: view(true)}, upgradestate.Kind{Fence: "view"}, "the name orders in the database of v2 is taken"},
		"another view":     {named{err: view(false)}, upgradestate.Kind{Fence: "view", Fenced: "orders.n1"}, "the name orders in the database of v2 is taken"},
		"cannot be looked": {named{err: errors.New("no primary")}, upgradestate.Kind{}, "no primary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.kind.Kind, tc.kind.Fixed, tc.kind.Hidden = "orders", true, true
			d := upgradestate.Deployment{
				Namespaces: []upgradestate.Namespace{{Version: "v2", Kinds: []upgradestate.Kind{tc.kind}}},
			}
			m := New(Parts{Database: func(string) Database { return tc.there }})
			switch err := m.CheckNames(t.Context(), d, "v2"); {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
