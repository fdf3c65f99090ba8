package provision_test

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// TestIndexesThatRefuse: an index that record.Refuses names is built before anything is
// copied, so that each document that breaks it is refused by itself, with the others of its
// batch stored; and no other index refuses any of the documents that break one.
func TestIndexesThatRefuse(t *testing.T) {
	t.Parallel()
	key := func(fields ...any) bson.E {
		var d bson.D
		for i := 0; i < len(fields); i += 2 {
			d = append(d, bson.E{Key: fields[i].(string), Value: fields[i+1]})
		}
		return bson.E{Key: "key", Value: d}
	}
	doc := func(fields ...any) bson.D { return key(fields...).Value.(bson.D) }
	var deep any = "x"
	for range 90 {
		deep = bson.D{{Key: "d", Value: deep}}
	}
	bad := map[string]bson.D{
		"geo":        doc("a", doc("type", "Point", "coordinates", bson.A{200, 95})),
		"geo text":   doc("a", "here"),
		"polygon":    doc("a", doc("type", "Polygon", "coordinates", bson.A{bson.A{bson.A{0, 0}, bson.A{1, 1}}})),
		"array":      doc("a", bson.A{1, 2}),
		"parallel":   doc("a", bson.A{1, 2}, "b", bson.A{3, 4}),
		"parallel 2": doc("o", bson.A{doc("a", 1)}, "a", bson.A{1}, "b", bson.A{1}, "p", bson.A{doc("a", 1)}),
		"language":   doc("a", "x", "language", "klingon"),
		"language 2": doc("a", "x", "language", 5),
		"deep":       doc("a", deep),
		"large":      doc("a", strings.Repeat("x", 200_000), "b", "y"),
		"null":       doc("a", nil),
		"dots":       doc("a", doc("b.c", 1, "$x", 2)),
	}
	for name, spec := range map[string]bson.D{
		"plain":             {key("a", 1)},
		"plain nested":      {key("a.b", 1)},
		"compound":          {key("a", 1, "b", -1)},
		"compound nested":   {key("o.a", 1, "p.a", 1)},
		"compound with _id": {key("a", 1, "_id", 1)},
		"2dsphere":          {key("a", "2dsphere")},
		"2d":                {key("a", "2d")},
		"text":              {key("a", "text")},
		"text of all":       {key("$**", "text")},
		"hashed":            {key("a", "hashed")},
		"wildcard":          {key("$**", 1)},
		"wildcard of one":   {key("a.$**", 1)},
		"wildcard compound": {key("a", 1, "b.$**", 1)},
		"unique":            {key("a", 1), {Key: "unique", Value: true}},
		"partial unique":    {key("b", 1), {Key: "unique", Value: true}, {Key: "partialFilterExpression", Value: doc("a", doc("$exists", true))}},
		"expiring":          {key("a", 1), {Key: "expireAfterSeconds", Value: int64(record.NeverExpires)}},
		"collation":         {key("a", 1), {Key: "collation", Value: doc("locale", "de")}},
		"sparse":            {key("a", 1), {Key: "sparse", Value: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := storetest.NewEngine(t)
			raw := wire.MustMarshal(append(spec, bson.E{Key: "name", Value: "ix"}))
			kind := record.KindSpec{Name: "k", Fixed: true, Shape: record.Shape{Indexes: []bson.Raw{raw}}}
			tok, err := e.NS.Provision(t.Context(), kind, "k")
			if err != nil {
				t.Fatal(err)
			}
			var refused []string
			b := record.Batch{Tokens: storetest.TokensOf(tok), Epoch: 1}
			var names []string
			add := func(id string, d bson.D) {
				names = append(names, id)
				b.Groups = append(b.Groups, storetest.Group(1, storetest.Put(t, "k", append(bson.D{{Key: "_id", Value: id}}, d...))))
			}
			for id, d := range bad {
				add(id, d)
				add(id+" again", d) // breaks what is unique
				add("good "+id, doc("n", 1))
			}
			results, err := e.NS.Load(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				switch r.Outcome {
				case record.Refused:
					refused = append(refused, fmt.Sprint(names[i], ": ", r.Err))
				case record.Applied:
				default:
					t.Errorf("%s: %+v", names[i], r)
				}
				if strings.HasPrefix(names[i], "good") && r.Outcome != record.Applied && !strings.Contains(name, "unique") {
					t.Errorf("%s: %v", names[i], r.Err)
				}
			}
			t.Log(strings.Join(refused, "\n"))
			// Lists in two fields are what a plain one of several refuses.
			if late := strings.HasPrefix(name, "compound") && name != "compound with _id"; (len(refused) > 0) != (record.Refuses(raw) || late) || late && record.Refuses(raw) {
				t.Errorf("%d refused", len(refused))
			}
			if name == "compound with _id" || len(refused) == 0 || record.IsUnique(raw) {
				return
			}
			again, err := e.NS.Apply(t.Context(), record.Batch{Tokens: b.Tokens, Epoch: 2, Groups: b.Groups})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range again {
				if (r.Outcome == record.Refused) != (results[i].Outcome == record.Refused) {
					t.Errorf("apply %s: %+v, load %+v", names[i], r, results[i])
				}
			}
			buildOver(t, raw, bad, len(refused))
		})
	}
}

// buildOver builds an index where the documents that break it are already: all are named, and
// none of what they hold.
func buildOver(t *testing.T, raw bson.Raw, bad map[string]bson.D, want int) {
	t.Helper()
	e := storetest.NewEngine(t)
	kind := record.KindSpec{Name: "k", Fixed: true}
	tok, err := e.NS.Provision(t.Context(), kind, "k")
	if err != nil {
		t.Fatal(err)
	}
	for id, d := range bad {
		for _, name := range []string{id, id + " again"} {
			e.Insert(tok, append(bson.D{{Key: "_id", Value: name}}, d...))
		}
	}
	kind.Shape.Indexes = []bson.Raw{raw}
	for range 2 {
		err = e.NS.BuildIndexes(t.Context(), tok, kind)
		if err == nil || strings.Contains(err.Error(), "klingon") || !strings.Contains(err.Error(), fmt.Sprintf("%d documents have values", want)) {
			t.Fatalf("%v, want %d documents", err, want)
		}
	}
	named := 0
	for id := range bad {
		named += strings.Count(err.Error(), id+" (") + strings.Count(err.Error(), id+" again (")
	}
	if named < want {
		t.Errorf("%d named: %v", named, err)
	}
	left, err := e.NS.DB.ListCollectionNames(t.Context(), bson.D{})
	if err != nil || strings.Contains(strings.Join(left, " "), "dbc_indexes_") {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestUniqueIndexThatRefuses: what one document breaks of a unique index of several fields is
// named as that of any other; that two documents are alike is for the build itself.
func TestUniqueIndexThatRefuses(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	kind := record.KindSpec{Name: "k", Fixed: true}
	tok, err := e.NS.Provision(t.Context(), kind, "k")
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range []bson.D{
		{{Key: "a", Value: bson.A{1, 2}}, {Key: "b", Value: bson.A{3, 4}}}, {{Key: "a", Value: 1}, {Key: "b", Value: 2}},
		{{Key: "a", Value: bson.A{5, 6}}, {Key: "b", Value: bson.A{7, 8}}}, {{Key: "a", Value: 1}, {Key: "b", Value: 3}},
	} {
		e.Insert(tok, append(bson.D{{Key: "_id", Value: fmt.Sprint("d", i)}}, d...))
	}
	kind.Shape.Indexes = []bson.Raw{wire.MustMarshal(bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}, {Key: "b", Value: 1}}}, {Key: "unique", Value: true}, {Key: "name", Value: "ix"}})}
	err = e.NS.BuildIndexes(t.Context(), tok, kind)
	if err == nil || !strings.Contains(err.Error(), "2 documents have values") || !strings.Contains(err.Error(), "d0 (") || !strings.Contains(err.Error(), "d2 (") {
		t.Errorf("%v, want d0 and d2", err)
	}
}
