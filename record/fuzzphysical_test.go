package record_test

import (
	"testing"

	"dbcontroller.dev/record"
)

// FuzzPhysical: a name of a collection in a database is one that PhysicalName gives, or is no name of
// ours. Any login with writes may choose it.
func FuzzPhysical(f *testing.F) {
	for _, name := range []string{"orders.n7", "orders.n0", "orders.n07", ".n1", "a.n1.n2", "orders.n18446744073709551616", "orders.n", "n1", "\xff.n1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		kind, seq, ok := record.KindOfPhysical(name)
		if ok && record.PhysicalName(kind, seq) != name {
			t.Errorf("%q is the name of %q and %d, which is %q", name, kind, seq, record.PhysicalName(kind, seq))
		}
		if !ok && (kind != "" || seq != 0) {
			t.Errorf("%q is no name, and of %q and %d", name, kind, seq)
		}
	})
}
