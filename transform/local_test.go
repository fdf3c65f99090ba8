package transform_test

import (
	"slices"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// TestLocalKinds: records of local kinds are in no group of any direction, so they are never copied,
// compared, proven, parked or taken back. Their collections exist on both sides.
func TestLocalKinds(t *testing.T) {
	t.Parallel()
	asIs := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
	side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "books"}}}}
	registry := func(local ...string) *transform.Registry {
		r := transform.NewRegistry("library")
		if err := r.Add("v1", "v2", transform.Spec{Name: "books", Old: side, New: side, Up: asIs, Down: asIs}); err != nil {
			t.Fatal(err)
		}
		for _, version := range local {
			if err := r.DeclareLocal(version, record.KindSpec{Name: "copies"}); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	plain, local := registry(), registry("v1", "v2")
	for _, way := range [][2]string{{"v1", "v2"}, {"v2", "v1"}, {"v1", "v1@b"}, {"v2@b", "v2"}} {
		d, err := local.Direction(way[0], way[1])
		if err != nil {
			t.Fatal(err)
		}
		for what, kinds := range map[string][]record.KindSpec{"source": d.SourceKinds(), "target": d.TargetKinds()} {
			if n := len(slices.DeleteFunc(kinds, func(k record.KindSpec) bool { return k.Name != "copies" })); n != 1 {
				t.Errorf("%v: the %s has the kind %d times", way, what, n)
			}
		}
		if transform.SyncsFrom(d, "copies") || transform.SyncsTo(d, "copies") || transform.SearchedTo(d, "copies") || d.Twin("copies") != "" {
			t.Errorf("%v: the records are migrated", way)
		}
		if !transform.SyncsFrom(d, "books") || !transform.SyncsTo(d, "books") {
			t.Errorf("%v: other records are not migrated", way)
		}
		// Controllers of another build must not take part.
		before, err := plain.Direction(way[0], way[1])
		if err != nil || before.Hash() == d.Hash() {
			t.Errorf("%v: the hash is %s with and without, %v", way, d.Hash(), err)
		}
	}
	one, err := registry("v2").Direction("v1", "v2")
	if err != nil || len(one.SourceKinds()) != 1 || len(one.TargetKinds()) != 2 {
		t.Errorf("a kind of one version only: %v, %v", one, err)
	}
	for _, bad := range []record.KindSpec{{}, {Name: "books"}, {Name: "copies"}, {Name: "a", Fixed: true}} {
		if err := local.DeclareLocal("v2", bad); err == nil {
			t.Errorf("%+v is declared", bad)
		}
	}
}
