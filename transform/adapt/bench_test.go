package adapt_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
)

// BenchmarkPage lists pages of a kind of 20,000 records in the middle of it: of the version's own
// store, and of the adapted one in each of the ways that there are.
func BenchmarkPage(b *testing.B) {
	const records = 20_000
	for _, label := range []string{"names that sort the same", "one kind leads", "names that sort otherwise"} {
		w := ways[label]
		f := w.make(b, mongo(b))
		own := namespaceOn(b, mongo(b), record.KindSpec{Name: w.kind})
		fill := func(kind string, s *namespace, make func(i int) []record.Record) {
			var docs []any
			coll := mongotest.Client(b).Database(s.client.(mongodb).name).Collection(s.tokens[kind].Name)
			for i := range records {
				for _, r := range make(i) {
					if r.Kind == kind {
						docs = append(docs, r.Doc)
					}
				}
				if len(docs) >= 1000 {
					if _, err := coll.InsertMany(b.Context(), docs); err != nil {
						b.Fatal(err)
					}
					docs = docs[:0]
				}
			}
			if len(docs) > 0 {
				if _, err := coll.InsertMany(b.Context(), docs); err != nil {
					b.Fatal(err)
				}
			}
		}
		shown := func(i int) record.Record {
			return made(w.kind, append(w.doc(w.name(i)), bson.E{Key: "payload", Value: fmt.Sprintf("%0400d", i)}))
		}
		fill(w.kind, own, func(i int) []record.Record { return []record.Record{shown(i)} })
		for _, k := range f.show.SourceKinds() {
			fill(k.Name, f.stored, func(i int) []record.Record { return kept(b, f, shown(i)) })
		}
		for _, size := range []int{10, 1000} {
			for side, s := range map[string]adapt.Store{"own": own, "adapted": f.adapter} {
				b.Run(fmt.Sprintf("%s/%d/%s", label, size, side), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						recs, err := s.List(b.Context(), w.kind, "", w.name(records/3), size)
						if err != nil || len(recs) != size {
							b.Fatal(len(recs), err)
						}
					}
				})
			}
		}
	}
}

// kept is what is stored of a record shown.
func kept(t fatal, f face, r record.Record) []record.Record {
	t.Helper()
	id, _, err := f.keep.GroupOf(r.Kind, r.Key)
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.keep.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{r}}, transform.Group{Name: id.Name})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
