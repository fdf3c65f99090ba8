package provision_test

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestClear: what is kept next to kinds goes with the last of them, and stays while anybody
// else has a collection there.
func TestClear(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok, err := e.NS.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	names := func() []string {
		list, err := e.NS.DB.ListCollectionNames(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(list)
		return list
	}
	before := names()
	if left, err := e.NS.Clear(t.Context()); err != nil || !slices.Contains(left, "things.n1") || !slices.Equal(names(), before) {
		t.Errorf("while a kind is there: left %v, %v; there are %v, were %v", left, err, names(), before)
	}
	if err := e.NS.Drop(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if left, err := e.NS.Clear(t.Context()); err != nil || len(left) != 0 || len(names()) != 0 {
		t.Errorf("left %v, %v; there are %v", left, err, names())
	}
	if left, err := e.NS.Clear(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("again: left %v, %v", left, err)
	}
}

// TestVacate: a database in which others have collections loses all that is kept next to kinds, and the
// view of a completed version, as soon as no deployment uses it any longer. Forget takes nothing away
// from a kind with a similar name.
func TestVacate(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	mine, other := record.Owner{Deployment: "services/a/deployments/b", Version: "v1"}, record.Owner{Deployment: "services/a/deployments/b2", Version: "v1"}
	toks := map[string]record.Token{}
	for kind, owner := range map[string]record.Owner{"a.*b": mine, "a.xxb": other, "a.*b.n1": other} {
		spec := record.KindSpec{Name: kind, Fixed: true}
		tok, err := e.NS.Provision(t.Context(), spec, kind)
		if err != nil {
			t.Fatal(err)
		}
		toks[kind] = tok
		f := record.Fence{Class: record.FenceValidator, Token: tok, To: record.PhysicalName(kind, 4)}
		f.Ends = f.To
		if err := e.NS.Claim(t.Context(), tok, owner); err != nil {
			t.Fatal(err)
		}
		if err := e.NS.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	for _, owner := range []record.Owner{mine, other} {
		if err := e.NS.PutMark(t.Context(), record.Mark{Owner: owner}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.NS.CloseName(t.Context(), record.Fence{Class: record.FenceView, Token: record.Token{Kind: "closed", ID: toks["a.*b"].ID, Fixed: true}, To: "dbc_retired.v0.closed.n1"}, "gone", nil); err != nil {
		t.Fatal(err)
	}
	if err := e.NS.DB.CreateView(t.Context(), "theirs", "a.*b", bson.A{}); err != nil {
		t.Fatal(err)
	}
	free := func(kind string, want uint64) {
		t.Helper()
		if n, err := e.NS.FreeNumber(t.Context(), kind); err != nil || n != want {
			t.Errorf("free number of %s: %d, %v, want %d", kind, n, err, want)
		}
	}
	for kind := range toks {
		free(kind, 5)
	}
	if err := e.NS.Forget(t.Context(), toks["a.*b"]); err != nil {
		t.Fatal(err)
	}
	free("a.*b", 1)
	free("a.xxb", 5)
	free("a.*b.n1", 5)
	if err := e.NS.Release(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	left, err := e.NS.Vacate(t.Context())
	if err != nil || !slices.Contains(left, "dbc_owner") || !slices.Contains(left, "dbc_guards.a.xxb") {
		t.Errorf("while another deployment uses the database: left %v, %v", left, err)
	}
	free("a.xxb", 5)
	if err := e.NS.Release(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		left, err = e.NS.Vacate(t.Context())
		slices.Sort(left)
		if err != nil || !slices.Equal(left, []string{"a.*b", "a.*b.n1", "a.xxb", "theirs"}) {
			t.Errorf("left %q, %v", left, err)
		}
	}
	list, err := e.NS.DB.ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: bson.D{{Key: "$ne", Value: "system.views"}}}})
	if slices.Sort(list); err != nil || !slices.Equal(list, left) {
		t.Errorf("there are %q, %v", list, err)
	}
}
