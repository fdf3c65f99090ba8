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
