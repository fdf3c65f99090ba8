package mongostore_test

import (
	"context"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
)

// TestSweep drops what begins with the prefix, with all that is kept next to it, and
// nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	uri, name := mongotest.Database(t)
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: uri, Database: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	db := mongotest.Client(t).Database(name)
	for _, other := range []string{"orders", "dbc_proofs", "dbc_proo"} {
		if err := db.CreateCollection(ctx, other); err != nil {
			t.Fatal(err)
		}
	}
	own := record.KindSpec{Name: "orders", Fixed: true}
	if _, err := ns.Provision(ctx, own, "orders"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []record.KindSpec{{Name: "dbc_proof_a.managed"}, {Name: "dbc_proof_a.fixed", Fixed: true}} {
		at := record.PhysicalName(kind.Name, 1)
		if kind.Fixed {
			at = kind.Name
		}
		tok, err := ns.Provision(ctx, kind, at)
		if err != nil {
			t.Fatal(err)
		}
		class := record.FenceUUID
		if kind.Fixed {
			class = record.FenceView // leaves a view
		}
		if err := ns.Fence(ctx, record.Fence{Class: class, Token: tok, To: record.PhysicalName(kind.Name, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.CreateCollection(ctx, "dbc_fence.dbc_proof_a.fixed.n3"); err != nil {
		t.Fatal(err) // the gate of a fence whose process died
	}
	for range 2 { // the second time there is nothing to do
		if err := ns.Sweep(ctx, "dbc_proof_"); err != nil {
			t.Fatal(err)
		}
		names, err := db.ListCollectionNames(ctx, bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		names = slices.DeleteFunc(names, func(n string) bool { return n == "system.views" })
		if want := []string{"dbc_guards.orders", "dbc_marks", "dbc_proo", "dbc_proofs", "orders"}; !slices.Equal(names, want) {
			t.Errorf("left are %v, want %v", names, want)
		}
		if n, err := db.Collection("dbc_marks").CountDocuments(ctx, bson.D{}); err != nil || n != 0 {
			t.Errorf("%d marks are left: %v", n, err)
		}
	}
}

// TestSweepRefuses prefixes of what is not scratch.
func TestSweepRefuses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	uri, name := mongotest.Database(t)
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: uri, Database: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	for _, prefix := range []string{"", "o", "orders", "dbc_", "dbc_marks", "dbc_guards.", "dbc_guards.orders", "dbc_fence.x"} {
		if err := ns.Sweep(ctx, prefix); err == nil {
			t.Errorf("%q is swept", prefix)
		}
	}
}

// TestSurvey: the survey of a server of one node.
func TestSurvey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	uri, name := mongotest.Database(t)
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: uri, Database: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	s, err := ns.Survey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Server == "" || s.Feature == "" || s.Mongos || !s.UUIDs || s.OplogProblem != "" || s.Users || !s.May("inprog") {
		t.Errorf("found %+v", s)
	}
}
