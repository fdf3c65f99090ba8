package blevesink_test

import (
	"fmt"
	"testing"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
)

// BenchmarkWrite fills an index page by page, as a Follower does: one operation is one record.
func BenchmarkWrite(b *testing.B) {
	x := open(b, config(b))
	items := make([]sink.Item, 0, 500)
	for i := 0; b.Loop(); i++ {
		doc := sink.Document{"text": {fmt.Sprintf("payments owner%d team%d in us-west2, the secret of %d", i%1000, i%50, i)}}
		items = append(items, sink.Item{Kind: "items", Name: fmt.Sprintf("projects/p%d/regions/us-west2/secrets/s%06d", i%10, i), Doc: doc,
			Guard: record.Guard{Epoch: 1, Version: record.Version{0: 1}}, Digest: doc.Digest()})
		if len(items) == cap(items) {
			if err := x.Write(b.Context(), items, sink.State{Generation: 1}); err != nil {
				b.Fatal(err)
			}
			items = items[:0]
		}
	}
}

// BenchmarkSearch searches 20,000 records for a word that one in a thousand has.
func BenchmarkSearch(b *testing.B) {
	x := open(b, config(b))
	for from := 0; from < 20_000; from += 500 {
		var items []sink.Item
		for i := from; i < from+500; i++ {
			doc := sink.Document{"text": {fmt.Sprintf("payments owner%d of %d", i%1000, i)}}
			items = append(items, sink.Item{Kind: "items", Name: fmt.Sprintf("projects/p%d/secrets/s%06d", i%10, i), Doc: doc, Guard: record.Guard{Epoch: 1, Version: record.Version{0: 1}}})
		}
		if err := x.Write(b.Context(), items, sink.State{Generation: 1}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		page, err := x.Search(b.Context(), record.SearchRequest{Kind: "items", Prefix: "projects/p7/", Limit: 100, Terms: []record.SearchTerm{{Text: "owner7"}}})
		if err != nil || len(page.Names) != 20 {
			b.Fatal(page, err)
		}
	}
}
