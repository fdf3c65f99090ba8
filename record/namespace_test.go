package record_test

import (
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/record"
)

func TestKindOfPhysicalIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.OneOf(rapid.StringMatching(`[a-z.]{1,8}`), rapid.StringMatching(`[a-z]+\.n[0-9]+`), rapid.StringN(1, 8, -1)).Draw(t, "kind")
		seq := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 12)).Draw(t, "seq")
		name := record.PhysicalName(kind, seq)
		k, s, ok := record.KindOfPhysical(name)
		if !ok || k != kind || s != seq {
			t.Fatalf("%q is %q, %d, %t", name, k, s, ok)
		}
	})
}

// What KindOfPhysical accepts is a name that PhysicalName makes: a collection of an
// application that only looks like one must not be taken for a kind's.
func TestKindOfPhysicalAcceptsNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z.]{0,3}\.?n?[0-9]{0,3}`)).Draw(t, "name")
		if k, s, ok := record.KindOfPhysical(name); ok && record.PhysicalName(k, s) != name {
			t.Fatalf("%q is taken for %q, number %d", name, k, s)
		}
	})
	for _, name := range []string{"", "n1", ".n1", "a", "a.n", "a.1", "a.n1x", "a.m1", "an1", "a.n-1", "a.n+1", "a.n01", "a.n99999999999999999999"} {
		if k, s, ok := record.KindOfPhysical(name); ok {
			t.Errorf("%q is taken for %q, number %d", name, k, s)
		}
	}
}

func TestFenceRenames(t *testing.T) {
	for class, want := range map[record.FenceClass]bool{
		"": true, record.FenceUUID: true, record.FenceView: true, record.FenceValidator: false, record.FenceWriteBlock: false,
	} {
		if have := (record.Fence{Class: class}).Renames(); have != want {
			t.Errorf("class %q renames: %t", class, have)
		}
	}
}
