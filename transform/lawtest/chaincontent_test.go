package lawtest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// owners groups records by their field owner: notes of one owner become one book, named
// by the owner, and back.
func owners(notes, book string) transform.Spec {
	owner := func(r record.Record) (string, error) {
		s, ok := r.Doc.Lookup("owner").StringValueOK()
		if !ok {
			return "", errors.New("no owner")
		}
		return string(record.StringKey(s)), nil
	}
	return transform.Spec{
		Name: "owners", Revision: "1",
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: notes}, Content: owner}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: book}}}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			var names bson.A
			for _, r := range src.Records {
				names = append(names, r.Key.String())
			}
			if names == nil {
				return nil, nil
			}
			return []record.Record{named(failure{}, book, src.Records[0].Doc.Lookup("owner").StringValue(), bson.E{Key: "notes", Value: names})}, nil
		},
		Down: func(src, _ transform.Group) (out []record.Record, _ error) {
			for _, r := range src.Records {
				names, err := r.Doc.Lookup("notes").Array().Values()
				if err != nil {
					return nil, err
				}
				for _, n := range names {
					out = append(out, named(failure{}, notes, n.StringValue(), bson.E{Key: "owner", Value: r.Key.String()}))
				}
			}
			return out, nil
		},
	}
}

func TestChainWithGroupsByContent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		first, second transform.Spec
		notes, book   string // their names, of group ann
		owner         string // the field of the old version that names the owner
	}{
		{"content first", owners("a", "b"), rekeyed("q", "b", "c", "y/", "-", "-"), "n", "y/ann", "owner"},
		{"content second", rekeyed("p", "a", "b", "x/", "by", "owner"), owners("b", "c"), "n", "ann", "by"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := chain(t, []transform.Spec{tc.first}, []transform.Spec{tc.second})
			up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
			x := []record.Record{named(t, "a", "n1", bson.E{Key: tc.owner, Value: "ann"}), named(t, "a", "n2", bson.E{Key: tc.owner, Value: "ann"})}
			var groups []string
			for _, rec := range x {
				g, err := up.ContentOf(rec)
				if err != nil {
					t.Fatal(err)
				}
				groups = append(groups, g)
			}
			if ann := string(record.StringKey("ann")); !slices.Equal(groups, []string{ann, ann}) {
				t.Fatalf("groups %q", groups)
			}
			if up.LineageKind(0) == "" || up.LineageKind(0) != down.LineageKind(0) || up.Whole("a") {
				t.Errorf("lineage in %q and %q, Whole %t", up.LineageKind(0), down.LineageKind(0), up.Whole("a"))
			}
			transformed := func(d transform.Direction, rs []record.Record) []record.Record {
				out, err := d.Transform(transform.GroupID{Name: groups[0]}, transform.Group{Name: groups[0], Records: rs}, transform.Group{Name: groups[0]})
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			y := transformed(up, x)
			if list(y) != "c "+tc.book {
				t.Fatalf("became %s", list(y))
			}
			if g, err := down.ContentOf(y[0]); g != groups[0] || err != nil {
				t.Errorf("group of %s: %q, %v", list(y), g, err)
			}
			if back := transformed(down, y); list(back) != "a n1, a n2" || back[1].Doc.Lookup(tc.owner).StringValue() != "ann" {
				t.Errorf("came back as %s", list(back))
			}
			if _, err := up.ContentOf(named(t, "a", "n3")); err == nil || !strings.Contains(err.Error(), "no owner") {
				t.Errorf("group of a record without an owner: %v", err)
			}
		})
	}
}

// What goes by content in the middle is not made of single records of the last version.
func TestChainThatCannotGoByContent(t *testing.T) {
	t.Parallel()
	first := inverse(owners("b", "a")) // books become notes
	split := rollouts1("q", "b", "c", "d")
	_, err := chain(t, []transform.Spec{first}, []transform.Spec{split}).Direction("v1", "v3")
	if !errors.Is(err, transform.ErrNoChain) || !strings.Contains(err.Error(), "b goes by content") {
		t.Errorf("error is %v", err)
	}
}
