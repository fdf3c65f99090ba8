package memstore_test

import (
	"slices"
	"testing"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
)

// TestSweep drops what begins with the prefix, whatever stands in its place, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := memstore.New()
	for _, name := range []string{"orders", "dbc_proofs"} {
		if _, err := s.Provision(ctx, record.KindSpec{Name: name, Fixed: true}, name); err != nil {
			t.Fatal(err)
		}
	}
	kind := record.KindSpec{Name: "dbc_proof_a.fixed", Fixed: true}
	tok, err := s.Provision(ctx, kind, kind.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Fence(ctx, record.Fence{Class: record.FenceView, Token: tok, To: record.PhysicalName(kind.Name, 2)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Provision(ctx, record.KindSpec{Name: "dbc_proof_a.managed"}, record.PhysicalName("dbc_proof_a.managed", 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if err := s.Sweep(ctx, "dbc_proof_"); err != nil {
			t.Fatal(err)
		}
		names := s.Names()
		slices.Sort(names)
		if want := []string{"dbc_proofs", "orders"}; !slices.Equal(names, want) {
			t.Errorf("left are %v, want %v", names, want)
		}
	}
	for _, prefix := range []string{"", "o", "dbc_"} {
		if err := s.Sweep(ctx, prefix); err == nil {
			t.Errorf("%q is swept", prefix)
		}
	}
}
