package changes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestWatchManyKinds: a thousand kinds are followed, each, and none that another's name begins
// with, however long their names are: patterns of short ones are filled up to the last byte.
func TestWatchManyKinds(t *testing.T) {
	for _, length := range []int{0, 20, 150} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			e := storetest.NewEngine(t)
			kinds := make([]record.KindSpec, 1000)
			for i := range kinds {
				kinds[i] = record.KindSpec{Name: fmt.Sprintf("kind(%03d)%s", i, strings.Repeat("x", length)), Fixed: i%2 == 0}
			}
			s := e.Watch(e.Position(), kinds...)
			insert := func(coll string) {
				if _, err := e.NS.DB.Collection(coll).InsertOne(t.Context(), bson.D{{Key: "_id", Value: coll}}); err != nil {
					t.Fatal(err)
				}
			}
			first, last := kinds[0].Name, kinds[999].Name
			for _, coll := range []string{"y" + last + ".n1", last + "y.n1", last + ".n1x", last, last + ".n7", first + ".n3", first} {
				insert(coll)
			}
			var seen []string
			for _, c := range e.Until(s, func(c record.Change) bool { return c.Key == record.StringKey(first) }) {
				seen = append(seen, c.Kind)
			}
			// A fixed-name kind has writes under its own name and under its hidden ones.
			if fmt.Sprint(seen) != fmt.Sprint([]string{last, first, first}) {
				t.Errorf("changes of %v, want one of the last kind and two of the first", seen)
			}
		})
	}
}

// TestWatchScratchKinds: a reply about those ends with the first change, since it might not end while
// a copy inserts next to them.
func TestWatchScratchKinds(t *testing.T) {
	e := storetest.NewEngine(t)
	kind := record.KindSpec{Name: record.ProofKinds + "x.new.things"}
	from := e.Position()
	for id := range 3 {
		if _, err := e.NS.DB.Collection(kind.Name+".n1").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}}); err != nil {
			t.Fatal(err)
		}
	}
	s := e.Watch(from, kind)
	for n := 0; n == 0; {
		batch, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n = len(batch.Changes); n > 1 {
			t.Errorf("%d changes of one reply, want the first", n)
		}
	}
}

// BenchmarkWatchManyKinds is the time from writes to their changes, of a stream of one kind and
// of ones of many, and where four of five writes are to a collection that is no kind.
func BenchmarkWatchManyKinds(b *testing.B) {
	for _, c := range []struct{ kinds, others int }{{1, 0}, {100, 0}, {1000, 0}, {1, 4}, {1000, 4}} {
		n := c.kinds
		b.Run(fmt.Sprintf("kinds=%d/others=%d", n, c.others), func(b *testing.B) {
			ns := storetest.NewEngine(b).NS
			kinds := make([]record.KindSpec, n)
			for i := range kinds {
				kinds[i] = record.KindSpec{Name: fmt.Sprintf("kind%03d", i), Fixed: true}
			}
			at, err := ns.Position(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			s, err := ns.Watch(b.Context(), at, kinds)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(b.Context()) //nolint:errcheck // nothing more is wanted of it
			b.ResetTimer()
			for range b.N {
				docs := make([]any, 1000)
				insert := func(coll string) {
					for k := range docs {
						docs[k] = bson.D{{Key: "_id", Value: bson.NewObjectID()}}
					}
					if _, err := ns.DB.Collection(coll).InsertMany(b.Context(), docs); err != nil {
						b.Fatal(err)
					}
				}
				for range c.others {
					insert("other")
				}
				insert(kinds[n-1].Name)
				start := time.Now()
				for got := 0; got < len(docs); {
					batch, err := s.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					got += len(batch.Changes)
				}
				b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms/1000-changes")
			}
		})
	}
}
