package lawtest_test

import (
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// TestTwin: a kind has a twin where a record stays one record with its key, whatever becomes
// of the rest; only other kinds of the target have to be searched for strays.
func TestTwin(t *testing.T) {
	t.Parallel()
	none := func(transform.Group, transform.Group) ([]record.Record, error) { return nil, nil }
	of := func(name string, old, fresh []transform.GroupedKind) transform.Spec {
		return transform.Spec{Name: name, Up: none, Down: none, Old: transform.Side{Kinds: old}, New: transform.Side{Kinds: fresh}}
	}
	plain := func(names ...string) (ks []transform.GroupedKind) {
		for _, name := range names {
			ks = append(ks, transform.GroupedKind{KindSpec: record.KindSpec{Name: name}})
		}
		return ks
	}
	content := func(name string) []transform.GroupedKind {
		k := plain(name)
		k[0].Content = func(record.Record) (string, error) { return "g", nil }
		return k
	}
	steps := []transform.Spec{
		of("same", plain("a"), plain("a")), of("renamed", plain("b1"), plain("b2")), rekeyed("rekeyed", "c1", "c2", "x/", "f", "g"),
		of("split", plain("d1"), plain("d2", "d3")), of("content", content("e1"), content("e2")),
		{Name: "gone", Discontinued: true, Old: transform.Side{Kinds: plain("f1")}},
	}
	r := chain(t, steps, []transform.Spec{
		of("same", plain("a"), plain("a")), of("renamed", plain("b2"), plain("b3")), of("c", plain("c2"), plain("c2")),
		of("d", plain("d2", "d3"), plain("d4", "d5")), of("e", content("e2"), content("e2")),
	})
	for _, tc := range []struct {
		from, to string
		twins    map[string]string // by source kind
		searched []string
	}{
		{"v1", "v2", map[string]string{"a": "a", "b1": "b2"}, []string{"c2", "d2", "d3", "e2"}},
		{"v2", "v1", map[string]string{"a": "a", "b2": "b1"}, []string{"c1", "d1", "e1"}},
		{"v1", "v3", map[string]string{"a": "a", "b1": "b3"}, []string{"c2", "d4", "d5", "e2"}},
	} {
		d := direct(t, r, tc.from, tc.to)
		for _, k := range append(d.SourceKinds(), record.KindSpec{Name: "unknown"}) {
			if got := d.Twin(k.Name); got != tc.twins[k.Name] {
				t.Errorf("%s to %s: the twin of %s is %q, want %q", tc.from, tc.to, k.Name, got, tc.twins[k.Name])
			}
		}
		searched := map[string]bool{}
		for _, name := range tc.searched {
			searched[name] = true
		}
		for _, k := range d.TargetKinds() {
			if got := transform.SearchedTo(d, k.Name); got != searched[k.Name] {
				t.Errorf("%s to %s: strays are looked for in %s: %t", tc.from, tc.to, k.Name, got)
			}
		}
	}
}

// silent is a mapping that does not say whether it keeps the order.
type silent struct{ transform.Mapping }

// ordered is a mapping of parents that keeps the order of names under some of them.
type ordered struct {
	transform.Identity
	under map[string]string // and what the parent is called on the other side
}

func (o ordered) Parent(s string) (string, error) {
	if to, ok := o.under[s]; ok {
		return to, nil
	}
	return "", &transform.MappingError{Field: s, Reason: "none"}
}

func (o ordered) KeepsOrder(parent string) bool { _, ok := o.under[parent]; return ok }

// TestKeepsOrder: only a mapping that can tell keeps the order of names.
func TestKeepsOrder(t *testing.T) {
	t.Parallel()
	first := ordered{under: map[string]string{"a": "b"}}
	for _, tt := range []struct {
		m      transform.Mapping
		parent string
		want   bool
	}{
		{transform.Identity{}, "", true}, {first, "a", true}, {first, "b", false},
		{struct{ transform.Identity }{}, "", false}, {silent{transform.Identity{}}, "", false}, {struct{ transform.Mapping }{first}, "a", false},
	} {
		if got := transform.KeepsOrder(tt.m, tt.parent); got != tt.want {
			t.Errorf("%#v under %q: %v", tt.m, tt.parent, got)
		}
	}
}
