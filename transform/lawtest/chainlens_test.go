package lawtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
)

func parseLens(t testing.TB, text string) *lens.Lens {
	t.Helper()
	l, err := lens.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestChainOfLenses(t *testing.T) {
	t.Parallel()
	first := parseLens(t, "lens: 1\noperations:\n  - move: {from: homepage, to: links.homepage}\n  - add: {field: state, default: new}\n  - rename: {from: n, to: count}\n")
	second := parseLens(t, "lens: 1\noperations:\n  - move: {from: links.homepage, to: web.site}\n  - convert: {field: count, from: int, to: string}\n  - add: {field: owner, default: nobody}\n  - remove: {field: legacy}\n")
	third := parseLens(t, "lens: 1\noperations:\n  - rename: {from: state, to: phase}\n  - move: {from: owner, to: meta.owner}\n")
	r := chain(t, []transform.Spec{first.Spec("a", "b")}, []transform.Spec{second.Spec("b", "c")}, []transform.Spec{third.Spec("c", "d")})
	keys := rapid.SampledFrom([]string{"k", "l"})
	draw := func(kind string, fields ...func(*rapid.T) bson.E) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record {
			var d []bson.E
			for i, f := range fields {
				if rapid.IntRange(0, 4).Draw(t, fmt.Sprint("leave out ", i)) > 0 {
					d = append(d, f(t))
				}
			}
			return []record.Record{named(t, kind, keys.Draw(t, "key"), rapid.Permutation(d).Draw(t, "order")...)}
		})
	}
	text := func(name string) func(*rapid.T) bson.E {
		return func(t *rapid.T) bson.E { return bson.E{Key: name, Value: rapid.StringN(0, 2, -1).Draw(t, name)} }
	}
	object := func(name, field string) func(*rapid.T) bson.E {
		return func(t *rapid.T) bson.E {
			return bson.E{Key: name, Value: bson.D{{Key: field, Value: rapid.StringN(0, 2, -1).Draw(t, name)}}}
		}
	}
	old := draw("a", text("homepage"), func(t *rapid.T) bson.E { return bson.E{Key: "n", Value: int32(rapid.IntRange(0, 9).Draw(t, "n"))} }, text("legacy"), text("kept"))
	for _, to := range []struct {
		version string
		new     *rapid.Generator[[]record.Record]
	}{
		{"v3", draw("c", object("web", "site"), func(t *rapid.T) bson.E {
			return bson.E{Key: "count", Value: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "n"))}
		}, text("kept"), text("state"), text("owner"))},
		{"v4", draw("d", object("web", "site"), text("kept"), text("phase"), object("meta", "owner"))},
	} {
		t.Run(to.version, func(t *testing.T) {
			t.Parallel()
			lawtest.Check(t, lawtest.Case{Up: direct(t, r, "v1", to.version), Down: direct(t, r, to.version, "v1"), Old: old, New: to.new, LossyUp: true, LossyDown: true})
		})
	}
}

// The first step puts a field where the middle version had it, the second one has another
// opinion of the order: what nothing changed must come out unchanged all the same.
func TestChainSettlesTheOrderOfFields(t *testing.T) {
	t.Parallel()
	first := parseLens(t, "lens: 1\noperations:\n  - move: {from: homepage, to: links.homepage}\n  - add: {field: state, default: new}\n").Spec("a", "b")
	second := plain("b", "b", "c")
	second.Old.Kinds[0].Fixed = true
	second.Down = func(src, _ transform.Group) ([]record.Record, error) {
		var d bson.D
		if err := bson.Unmarshal(src.Records[0].Doc, &d); err != nil {
			return nil, err
		}
		slices.SortStableFunc(d, func(a, b bson.E) int { return -strings.Compare(a.Key, b.Key) })
		name, _ := src.Records[0].Key.Name()
		return []record.Record{named(failure{}, "b", name, slices.DeleteFunc(d, func(e bson.E) bool { return e.Key == "_id" })...)}, nil
	}
	r := chain(t, []transform.Spec{first}, []transform.Spec{second})
	draw := func(kind string, fields ...bson.E) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record {
			return []record.Record{named(t, kind, "k", rapid.Permutation(fields).Draw(t, "order")...)}
		})
	}
	lawtest.Check(t, lawtest.Case{
		Up: direct(t, r, "v1", "v3"), Down: direct(t, r, "v3", "v1"), LossyDown: true,
		Old: draw("a", bson.E{Key: "homepage", Value: "h"}, bson.E{Key: "n", Value: 1}, bson.E{Key: "z", Value: 2}),
		New: draw("c", bson.E{Key: "links", Value: bson.D{{Key: "homepage", Value: "h"}}}, bson.E{Key: "n", Value: 1}, bson.E{Key: "z", Value: 2}, bson.E{Key: "state", Value: "old"}),
	})
}

// A lens that changes the key or makes several records of one, and lenses after it that
// take each of them.
func TestChainOfLensesThatChangeRecords(t *testing.T) {
	t.Parallel()
	const lines = "lens: 1\noperations:\n  - fanOut: {field: lines, as: list, kind: lines, key: \"%s\", id: sku, order: position%s}\n"
	rename := parseLens(t, "lens: 1\noperations:\n  - rename: {from: n, to: count}\n")
	amount := parseLens(t, "lens: 1\noperations:\n  - convert: {field: amount, from: int, to: string}\n")
	keyed := parseLens(t, "lens: 1\nkey: {from: 'p/{p}/s/{s}', to: 'p/{p}/r/{r}/s/{s}', with: {r: west}}\noperations:\n  - rename: {from: m, to: n}\n")
	records := func(kind, name string, fields func(t *rapid.T) bson.D) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record { return []record.Record{named(t, kind, name, fields(t)...)} })
	}
	n := func(t *rapid.T) int32 { return rapid.Int32Range(0, 3).Draw(t, "n") }
	orders := records("a", "o", func(t *rapid.T) bson.D {
		var list bson.A
		for _, sku := range []string{"x", "y", "z"}[:rapid.IntRange(1, 3).Draw(t, "lines")] {
			list = append(list, bson.D{{Key: "sku", Value: sku}, {Key: "amount", Value: n(t)}})
		}
		return bson.D{{Key: "n", Value: n(t)}, {Key: "lines", Value: list}}
	})
	split := func(key, parent string) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record {
			out := []record.Record{named(t, "c", "o", bson.E{Key: "count", Value: n(t)})}
			for i, sku := range []string{"x", "y", "z"}[:rapid.IntRange(1, 3).Draw(t, "lines")] {
				d := bson.D{{Key: "position", Value: int32(i)}, {Key: "sku", Value: sku}, {Key: "amount", Value: fmt.Sprint(n(t))}}
				if parent != "" {
					d = append(bson.D{{Key: parent, Value: "o"}}, d...)
				}
				out = append(out, named(t, "lines3", strings.NewReplacer("{_key}", "o", "{id}", sku).Replace(key), d...))
			}
			return out
		})
	}
	for _, tc := range []struct {
		name          string
		first, second []transform.Spec
		old, new      *rapid.Generator[[]record.Record]
	}{
		{"another key", []transform.Spec{keyed.Spec("a", "b")}, []transform.Spec{rename.Spec("b", "c")},
			records("a", "p/1/s/2", func(t *rapid.T) bson.D { return bson.D{{Key: "m", Value: n(t)}} }),
			records("c", "p/1/r/west/s/2", func(t *rapid.T) bson.D { return bson.D{{Key: "count", Value: n(t)}} })},
		{"another key at last", []transform.Spec{rename.Spec("a", "b")}, []transform.Spec{keyed.Spec("b", "c")},
			records("a", "p/1/s/2", func(t *rapid.T) bson.D { return bson.D{{Key: "n", Value: n(t)}} }),
			records("c", "p/1/r/west/s/2", func(t *rapid.T) bson.D { return bson.D{{Key: "count", Value: n(t)}} })},
		{"by name", []transform.Spec{parseLens(t, fmt.Sprintf(lines, "{_key}/{id}", "")).Spec("a", "b")}, []transform.Spec{rename.Spec("b", "c"), amount.Spec("lines", "lines3")}, orders, split("{_key}/{id}", "")},
		{"by content", []transform.Spec{parseLens(t, fmt.Sprintf(lines, "{id}", ", parent: order")).Spec("a", "b")}, []transform.Spec{rename.Spec("b", "c"), amount.Spec("lines", "lines3")}, orders, split("{id}", "order")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := chain(t, tc.first, tc.second)
			up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
			if content := tc.name == "by content"; (up.LineageKind(0) != "") != content || up.Whole("a") == content {
				t.Errorf("lineage in %q, Whole %t", up.LineageKind(0), up.Whole("a"))
			}
			lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: tc.old, New: tc.new})
		})
	}
}

// TestChainOfIDs: ObjectIds become names, and names documents, in one step over both.
func TestChainOfIDs(t *testing.T) {
	t.Parallel()
	first := parseLens(t, "key: {from: '{id:objectId}', to: 'users/{id}'}\noperations: []\n")
	second := parseLens(t, "key: {from: 'users/{id}', to: {v: 3, id: '{id:objectId}'}}\noperations: [{rename: {from: a, to: b}}]\n")
	r := chain(t, []transform.Spec{first.Spec("a", "b")}, []transform.Spec{second.Spec("b", "c")})
	ids := rapid.SampledFrom([]bson.ObjectID{{1}, {2}, {0xff}})
	draw := func(kind, field string, id func(bson.ObjectID) any) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record {
			d := bson.D{{Key: "_id", Value: id(ids.Draw(t, "id"))}}
			if rapid.Bool().Draw(t, "field") {
				d = append(d, bson.E{Key: field, Value: 1})
			}
			doc, err := bson.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			key, err := record.KeyOfDoc(doc)
			if err != nil {
				t.Fatal(err)
			}
			return []record.Record{{Kind: kind, Key: key, Doc: doc}}
		})
	}
	lawtest.Check(t, lawtest.Case{
		Up: direct(t, r, "v1", "v3"), Down: direct(t, r, "v3", "v1"),
		Old: draw("a", "a", func(id bson.ObjectID) any { return id }),
		New: draw("c", "b", func(id bson.ObjectID) any { return bson.D{{Key: "v", Value: 3}, {Key: "id", Value: id}} }),
	})
}

// TestShowGroup: people read the key that a group is named by, of whichever type it is.
func TestShowGroup(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name any
		want string
	}{
		{"users/1", "users/1"},
		{bson.ObjectID{0x65, 11: 0x5e}, `{"$oid":"65000000000000000000005e"}`},
		{int32(5), `{"$numberLong":"5"}`},
		{bson.D{{Key: "a", Value: "x"}}, `{"a": "x"}`},
	} {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: tc.name}})
		if err != nil {
			t.Fatal(err)
		}
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			t.Fatal(err)
		}
		if got := transform.ShowGroup(string(key)); got != tc.want {
			t.Errorf("%v is shown as %s, want %s", tc.name, got, tc.want)
		}
	}
	for _, name := range []string{"team x", "", "\x07short", "\x03\xff\xff\xff\xff"} {
		if got := transform.ShowGroup(name); got == name || got[0] != '"' {
			t.Errorf("%q is shown as %s", name, got)
		}
	}
}
