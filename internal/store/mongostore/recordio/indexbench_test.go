package recordio_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// indexedDocs is how many documents of about 1 KB the benchmark of index builds copies.
const indexedDocs = 300_000

// BenchmarkIndexes compares two ways to a full collection with two secondary indexes:
// indexes first and documents into them, and documents first.
func BenchmarkIndexes(b *testing.B) {
	e := storetest.NewEngine(b)
	src := e.Collection("src", "src", true)
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		raw := make([]byte, n)
		for i := range raw {
			raw[i] = 'a' + byte(rnd.IntN(26))
		}
		return string(raw)
	}
	docs := make([]any, 0, 5000)
	for i := range indexedDocs {
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprintf("guid-%08d", i)}, {Key: "mail", Value: text(20)},
			{Key: "domain", Value: fmt.Sprintf("domain-%d", rnd.IntN(1000))}, {Key: "modified", Value: rnd.Int64()},
			{Key: "text", Value: text(900)},
		})
		if len(docs) == cap(docs) {
			e.Insert(src, docs...)
			docs = docs[:0]
		}
	}
	ranges, err := e.NS.Split(b.Context(), src, 4*benchWorkers)
	if err != nil {
		b.Fatal(err)
	}
	shape := record.Shape{Indexes: []bson.Raw{
		wire.MustMarshal(bson.D{{Key: "key", Value: bson.D{{Key: "mail", Value: 1}}}, {Key: "name", Value: "mail_1"}}),
		wire.MustMarshal(bson.D{{Key: "key", Value: bson.D{{Key: "domain", Value: 1}, {Key: "modified", Value: -1}}}, {Key: "name", Value: "domain_1_modified_-1"}}),
	}}
	// The ways take turns, so that what else the machine does meets all of them.
	took := map[string]time.Duration{}
	built := time.Duration(0)
	ways := []string{"none", "before", "after"}
	for i := 0; b.Loop(); i++ {
		for _, way := range ways {
			b.StopTimer()
			spec := record.KindSpec{Name: way}
			name := fmt.Sprintf("%s.n%d", way, i+1)
			if way == "before" {
				spec.Shape = shape
			}
			dst, err := e.NS.Provision(b.Context(), spec, name)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			start := time.Now()
			copyRanges(b, ranges, func(ctx context.Context, r record.Range) (record.Range, bool, error) {
				return copyPage(ctx, e, src, dst, r)
			})
			if way == "after" {
				from := time.Now()
				spec.Shape = shape
				if _, err := e.NS.Provision(b.Context(), spec, name); err != nil {
					b.Fatal(err)
				}
				built += time.Since(from)
			}
			took[way] += time.Since(start)
			b.StopTimer()
			if err := e.NS.DB.Collection(name).Drop(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	for _, way := range ways {
		b.ReportMetric(took[way].Seconds()/float64(b.N), way+"-s/op")
	}
	b.ReportMetric(built.Seconds()/float64(b.N), "build-s/op")
}
