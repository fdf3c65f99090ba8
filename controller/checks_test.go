package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"dbcontroller/record"
	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
)

// TestVerifyBeforeTheCopy: an empty target is no difference while nobody has copied.
func TestVerifyBeforeTheCopy(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t)
	if _, err := w.app.Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nothing was brought from v1 to v2 yet") {
		t.Errorf("got %v", err)
	}
	w.app.cfg.Copy.Auto = true
	if _, err := w.app.Verify(t.Context(), nil); err != nil {
		t.Errorf("with copy.auto: %v", err)
	}
	lease, err := w.coord.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(state string) {
		t.Helper()
		p := syncer.Progress{Shard: 1, Owner: "c", State: state, Copied: 3, Total: 10}
		if err := w.app.deployment.PublishProgress(t.Context(), "c", []syncer.Progress{p}, lease.ID()); err != nil {
			t.Fatal(err)
		}
	}
	publish(syncer.StateCopying)
	if _, err := w.app.Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "1 shards still copy to v2 (3 of about 10 records)") {
		t.Errorf("in the middle of the copy: %v", err)
	}
	publish("following")
	if _, err := w.app.Verify(t.Context(), nil); err != nil {
		t.Errorf("after the copy: %v", err)
	}
}

// named is a namespace in which something stands under the name that is asked for.
type named struct {
	record.Namespace
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
		"a collection":     {named{info: record.Info{Exists: true}}, upgradestate.Kind{}, "a collection orders is in the database of v2 already"},
		"its fence":        {named{err: view(true)}, upgradestate.Kind{Fence: "view", Fenced: "orders.n1"}, ""},
		"a foreign fence":  {named{err: view(true)}, upgradestate.Kind{Fence: "view"}, "the name orders in the database of v2 is taken"},
		"another view":     {named{err: view(false)}, upgradestate.Kind{Fence: "view", Fenced: "orders.n1"}, "the name orders in the database of v2 is taken"},
		"cannot be looked": {named{err: errors.New("no primary")}, upgradestate.Kind{}, "no primary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.kind.Kind, tc.kind.Fixed, tc.kind.Hidden = "orders", true, true
			d := upgradestate.Deployment{
				Upgrade:    &upgradestate.Upgrade{TargetVersion: "v2"},
				Namespaces: []upgradestate.Namespace{{Version: "v2", Kinds: []upgradestate.Kind{tc.kind}}},
			}
			c := checks{app: &App{namespaces: map[string]record.Namespace{"v2": tc.there}}}
			switch err := c.checkNames(t.Context(), d); {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
