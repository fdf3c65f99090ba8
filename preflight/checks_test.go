package preflight

import (
	"context"
	"errors"
	"testing"

	"dbcontroller.dev/collections"
	"dbcontroller.dev/record"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// described is a database of which only this is known.
type described struct {
	collections.Database
	info record.Info
	err  error
}

func (d described) Describe(context.Context, record.KindSpec, string) (record.Info, error) {
	return d.info, d.err
}

// TestBeforeSealPasses: a database that does not answer ends an attempt at the switch, and what
// is found in it the upgrade.
func TestBeforeSealPasses(t *testing.T) {
	t.Parallel()
	free := described{}
	stopped := described{info: record.Info{Exists: true, Token: record.Token{ID: "1"}}}
	silent := described{err: errors.New("no primary")}
	for name, tc := range map[string]struct {
		source, target described
		fails, passes  bool
	}{
		"nothing":                           {stopped, free, false, false},
		"the target does not answer":        {stopped, silent, true, true},
		"the source does not answer":        {silent, free, true, true},
		"the target's name is taken":        {stopped, described{info: record.Info{Exists: true}}, true, false},
		"the target's name is a view's":     {stopped, described{err: &record.UnsupportedError{What: "orders"}}, true, false},
		"the source's collection is a view": {described{err: &record.UnsupportedError{What: "orders"}}, free, true, false},
		"the source's collection is gone":   {free, free, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := upgradestate.Deployment{
				CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{TargetVersion: "v2"},
				Namespaces: []upgradestate.Namespace{
					{Version: "v1", Kinds: []upgradestate.Kind{{Kind: "orders", Fixed: true, ID: "1", Physical: "orders.n1", Expiry: map[string]int64{"at_1": 60}}}},
					{Version: "v2", Kinds: []upgradestate.Kind{{Kind: "orders", Fixed: true, Hidden: true}}},
				},
			}
			of := map[string]collections.Database{"v1": tc.source, "v2": tc.target}
			c := Checks{Collections: collections.New(collections.Parts{Registry: transform.NewRegistry("shop"), Database: func(version string) collections.Database { return of[version] }})}
			err := c.BeforeSeal(t.Context(), d)
			if (err != nil) != tc.fails || errors.Is(err, switchover.ErrPasses) != tc.passes {
				t.Errorf("got %v", err)
			}
		})
	}
}
