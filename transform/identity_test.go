package transform

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

func services(t *testing.T) *Registry {
	t.Helper()
	r := NewRegistry("svc")
	orders := spec("orders", "orders", "orders")
	orders.Old.Kinds[0].Fixed, orders.New.Kinds[0].Fixed = true, true
	orders.Old.Kinds[0].Shape.Indexes = []bson.Raw{doc(t, bson.D{{Key: "name", Value: "i"}})}
	byContent := split()
	byContent.Old.Kinds[0].Content = func(record.Record) (string, error) { return "g", nil }
	byContent.New.Kinds[1].GroupOf, byContent.New.Kinds[1].Select = nil, nil
	gone := Spec{Name: "gone", Discontinued: true, Old: single("audit")}
	if err := r.Add("v1", "v2", orders, byContent, gone); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlacesOfOneVersion: between two places of a version every kind of it is moved as it
// is, whatever the transformers to other versions do with it.
func TestPlacesOfOneVersion(t *testing.T) {
	t.Parallel()
	r := services(t)
	for _, way := range [][2]string{{"v1", "v1@b"}, {"v1@b", "v1"}, {"v1@b", "v1@c"}} {
		d, err := r.Direction(way[0], way[1])
		if err != nil {
			t.Fatal(err)
		}
		if d.From() != way[0] || d.To() != way[1] {
			t.Errorf("it leads from %s to %s", d.From(), d.To())
		}
		for side, kinds := range map[string][]record.KindSpec{"source": d.SourceKinds(), "target": d.TargetKinds()} {
			var names []string
			for _, k := range kinds {
				names = append(names, k.Name)
				if k.Fixed != (k.Name == "orders") || len(k.Shape.Indexes) != 0 != k.Fixed {
					t.Errorf("%s kind %+v", side, k)
				}
			}
			if got := strings.Join(names, " "); got != "orders wholes audit" {
				t.Errorf("%s kinds %s", side, got)
			}
		}
		for _, kind := range []string{"orders", "wholes", "audit"} {
			if !SyncsFrom(d, kind) || !SyncsTo(d, kind) || !d.Whole(kind) {
				t.Errorf("%s is not migrated record by record", kind)
			}
			key := record.StringKey("k")
			id, ok, err := d.GroupOf(kind, key)
			if !ok || err != nil || d.NeedsHave(id) || d.LineageKind(id.Spec) != "" {
				t.Fatalf("group of %s: %v %t %v", kind, id, ok, err)
			}
			if back, _, _ := d.GroupOfTarget(kind, key); back != id {
				t.Errorf("group of the target's %s: %v", kind, back)
			}
			text := doc(t, bson.D{{Key: "_id", Value: "k"}, {Key: "b", Value: 1.0}, {Key: "a", Value: bson.A{nil, int32(1)}}})
			held := Group{Name: id.Name, Records: []record.Record{{Kind: kind, Key: key, Doc: doc(t, bson.D{{Key: "_id", Value: "k"}, {Key: "old", Value: 1}})}}}
			out, err := d.Transform(id, Group{Name: id.Name, Records: []record.Record{{Kind: kind, Key: key, Doc: text}}}, held)
			if err != nil || len(out) != 1 || out[0].Kind != kind || out[0].Key != key || !bytes.Equal(out[0].Doc, text) {
				t.Errorf("%s became %v, %v", kind, out, err)
			}
			if out, err := d.Transform(id, Group{Name: id.Name}, held); err != nil || len(out) != 0 {
				t.Errorf("a deleted %s became %v, %v", kind, out, err)
			}
		}
	}
}

// TestHashOfPlaces: the hash distinguishes directions, and lists of kinds.
func TestHashOfPlaces(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	note := func(what string, r *Registry, from, to string) {
		t.Helper()
		d, err := r.Direction(from, to)
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[d.Hash()]; twice {
			t.Errorf("%s has the hash of %s", what, other)
		}
		seen[d.Hash()] = what
	}
	r := services(t)
	note("v1 to v1@b", r, "v1", "v1@b")
	note("v1@b to v1", r, "v1@b", "v1")
	note("v1@b to v1@c", r, "v1@b", "v1@c")
	note("v2 to v2@b", r, "v2", "v2@b")
	note("v1 to v2", r, "v1", "v2")
	note("v1@b to v2", r, "v1@b", "v2")
	if err := r.Declare("v1", record.KindSpec{Name: "more"}); err != nil {
		t.Fatal(err)
	}
	note("v1 to v1@b with more", r, "v1", "v1@b")
	a, b := services(t), services(t)
	x, _ := a.Direction("v1", "v1@b")
	y, _ := b.Direction("v1", "v1@b")
	if x.Hash() != y.Hash() {
		t.Error("the same direction has two hashes")
	}
}

// TestLocationsOfDifferentVersions: an upgrade is the same from and to wherever.
func TestLocationsOfDifferentVersions(t *testing.T) {
	t.Parallel()
	r := services(t)
	d, err := r.Direction("v2@b", "v1@c")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := r.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	if d.From() != "v2@b" || d.To() != "v1@c" || d.LineageKind(1) == "" || d.LineageKind(1) != plain.LineageKind(1) {
		t.Errorf("from %s to %s with lineage in %s", d.From(), d.To(), d.LineageKind(1))
	}
}

// TestDeclare: kinds of a service without any transformer.
func TestDeclare(t *testing.T) {
	t.Parallel()
	r := NewRegistry("svc")
	if _, err := r.Direction("v1", "v1@b"); !errors.Is(err, ErrNoDirection) || !strings.Contains(err.Error(), "no kinds of v1 are known") {
		t.Errorf("without kinds: %v", err)
	}
	for want, k := range map[string]record.KindSpec{"has no name": {}, "are taken": {Name: LineageKind("x", "v1", "v2")}} {
		if err := r.Declare("v1", record.KindSpec{Name: "fine"}, k); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := r.Declare("v1", record.KindSpec{Name: "a"}, record.KindSpec{Name: "b", Fixed: true}, record.KindSpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Declare("v1", record.KindSpec{Name: "a", Fixed: true}); err == nil || !strings.Contains(err.Error(), "as fixed-name and as managed") {
		t.Errorf("a as another sort: %v", err)
	}
	if ks := r.Kinds("v1"); len(ks) != 2 || ks[0].Name != "a" || !ks[1].Fixed || strings.Join(r.Versions(), " ") != "v1" {
		t.Errorf("%v has %v", r.Versions(), ks)
	}
	if _, err := r.Direction("v1", "v1@b"); err != nil {
		t.Error(err)
	}
}

// TestDeclaredKindsNeedAWay: an upgrade does not leave a declared kind behind.
func TestDeclaredKindsNeedAWay(t *testing.T) {
	t.Parallel()
	r := NewRegistry("svc")
	if err := r.Declare("v2", record.KindSpec{Name: "y"}, record.KindSpec{Name: "z"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Add("v1", "v2", spec("s", "x", "y")); err != nil {
		t.Fatal(err)
	}
	for _, way := range [][2]string{{"v1", "v2"}, {"v2@b", "v1"}} {
		if _, err := r.Direction(way[0], way[1]); err == nil || !strings.Contains(err.Error(), "kind z of v2 has no transformer between v1 and v2") {
			t.Errorf("%v: %v", way, err)
		}
	}
	if err := r.Add("v1", "v2", spec("t", "z", "z")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Direction("v1", "v2"); err != nil {
		t.Error(err)
	}
}

// TestLineageOfEachPair: what the lineage from one version holds of groups is not read on
// the way to another, and both ways between two versions share theirs.
func TestLineageOfEachPair(t *testing.T) {
	t.Parallel()
	r := NewRegistry("svc")
	for _, pair := range [][2]string{{"v1", "v2"}, {"v2", "v3"}} {
		s := spec("s", "k", "k")
		s.Old.Kinds[0].Content = func(record.Record) (string, error) { return "g", nil }
		if err := r.Add(pair[0], pair[1], s); err != nil {
			t.Fatal(err)
		}
	}
	lineage := func(from, to string) string {
		d, err := r.Direction(from, to)
		if err != nil {
			t.Fatal(err)
		}
		return d.LineageKind(0)
	}
	first, second := lineage("v1", "v2"), lineage("v2", "v3")
	if first == second || first != lineage("v2@b", "v1") || second != lineage("v3", "v2@b") {
		t.Errorf("lineage in %s and %s, back in %s and %s", first, second, lineage("v2@b", "v1"), lineage("v3", "v2@b"))
	}
}
