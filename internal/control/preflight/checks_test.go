package preflight

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/record"
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

// TestBeforeSealPasses: a database that does not answer, or a collection that was replaced, ends an
// attempt at the switch. Anything else that is found ends the upgrade.
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
		"the source's collection is gone":   {free, free, true, true},
		"the source's collection is new":    {described{info: record.Info{Exists: true, Token: record.Token{ID: "2"}}}, free, true, true},
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

// kindsThere is a database of which only the collections of some kinds are known.
type kindsThere struct {
	collections.Database
	of map[string]record.Info
}

func (k kindsThere) Describe(_ context.Context, spec record.KindSpec, _ string) (record.Info, error) {
	return k.of[spec.Name], nil
}

// TestReasonsOfChecks: each check that fails gives its own code and place, and none hides another.
func TestReasonsOfChecks(t *testing.T) {
	t.Parallel()
	index, err := bson.Marshal(bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "n", Value: int32(1)}}}, {Key: "name", Value: "n_1"}})
	if err != nil {
		t.Fatal(err)
	}
	keep := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
	side := func(spec record.KindSpec) transform.Side {
		return transform.Side{Kinds: []transform.GroupedKind{{KindSpec: spec}}}
	}
	registry := transform.NewRegistry("shop")
	if err := registry.Add("v1", "v2", transform.Spec{
		Name: "things", Revision: "1", Up: keep, Down: keep,
		Old: side(record.KindSpec{Name: "things"}), New: side(record.KindSpec{Name: "things", Shape: record.Shape{Indexes: []bson.Raw{index}}}),
	}); err != nil {
		t.Fatal(err)
	}
	d := upgradestate.Deployment{
		CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u1", TargetVersion: "v2"},
		Namespaces: []upgradestate.Namespace{{Version: "v2", Kinds: []upgradestate.Kind{
			{Kind: "things", ID: "1", Physical: "things.n1"}, {Kind: "orders", Fixed: true, Hidden: true},
		}}},
	}
	prover := &Prover{id: "u1", err: errors.New("a record does not come back")}
	prover.Kept = func(string) bool { return true }
	c := Checks{
		Servers: func(context.Context) ([]upgradestate.ServerState, error) {
			return []upgradestate.ServerState{{ID: "s1", Protocol: upgradestate.MinProtocol, Versions: []string{"v1", "v2"}, Prepares: map[string]string{"v1": "other", "v2": "search index"}}, {ID: "s2", Protocol: upgradestate.MinProtocol, Versions: []string{"v1"}}}, nil
		},
		Collections: collections.New(collections.Parts{Registry: registry, Database: func(string) collections.Database {
			return kindsThere{of: map[string]record.Info{"things": {Exists: true, Token: record.Token{ID: "1"}}, "orders": {Exists: true}}}
		}}),
		Prover: prover,
		Lives:  func(context.Context, ...string) error { return errors.New("it is older than the deployment") },
	}
	want := []upgradestate.Blocker{
		{Code: upgradestate.BlockServers, Place: upgradestate.BlockPlace{Server: "s2"}, Text: "s2 knows only v1"},
		{Code: upgradestate.BlockPreparing, Place: upgradestate.BlockPlace{Version: "v2", Server: "s1"}, Text: "s1 prepares its search index"},
		{Code: upgradestate.BlockIndexes, Place: upgradestate.BlockPlace{Version: "v2", Kind: "things"}, Text: "index n_1 of v2/things is missing"},
		{Code: upgradestate.BlockNames, Place: upgradestate.BlockPlace{Version: "v2", Kind: "orders"}, Text: "a collection orders exists in the database of v2 already"},
		{Code: upgradestate.BlockProof, Place: upgradestate.BlockPlace{Version: "v1"}, Text: "a record does not come back"},
		{Code: upgradestate.BlockIdentity, Text: "it is older than the deployment"},
	}
	errs := c.BeforeSwitch(t.Context(), d)
	if len(errs) != len(want) {
		t.Fatalf("%d reasons %q, want %d", len(errs), errs, len(want))
	}
	for i, w := range want {
		b := upgradestate.BlockerOf(upgradestate.BlockUncoded, errs[i])
		if b.Code != w.Code || !b.Place.Equal(w.Place) || !strings.Contains(b.Text, w.Text) {
			t.Errorf("reason %d is %+v, want %+v", i, b, w)
		}
	}
}
