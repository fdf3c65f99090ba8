package backfill_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

const benchRecords = 100_000

// BenchmarkUpdate measures a data update of 100,000 documents of about 500 bytes in a real
// MongoDB by one controller: one that fills a field of each, and one that finds nothing to do.
func BenchmarkUpdate(b *testing.B) {
	uri, name := mongotest.Database(b)
	ns, err := mongostore.Open(b.Context(), mongostore.Config{URI: uri, Database: name})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ns.Close(context.WithoutCancel(b.Context())) })
	w := &world{t: b, coord: memcoord.New(), fixed: true}
	w.announce(ns, record.Shape{})
	docs := make([]any, benchRecords)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: fmt.Sprintf("item-%08d", i)}, {Key: "n", Value: int64(i)}, {Key: "text", Value: strings.Repeat("lorem ipsum ", 40)}}
	}
	if _, err := mongotest.Client(b).Database(name).Collection("items").InsertMany(b.Context(), docs); err != nil {
		b.Fatal(err)
	}
	round := 0
	fill := transform.Task{Name: "fill-region", Version: "v1", Kind: "items", Revision: "1", Func: func(r record.Record) (bson.Raw, error) {
		var d bson.D
		if err := bson.Unmarshal(r.Doc, &d); err != nil {
			return nil, err
		}
		return bson.Marshal(append(d[:3:3], bson.E{Key: "region", Value: fmt.Sprint("us-", round)}))
	}}
	tasks := transform.NewRegistry("items")
	w.check(tasks.AddTasks(fill))
	e := backfill.New(backfill.Parts{
		Tasks: tasks, Deployments: w.store, Journal: w.store, Ownership: w.owner(0, 1, 2, 3),
		Namespace: func(string) backfill.Namespace { return ns }, Lease: func() coord.LeaseID { return 0 }, Log: zap.NewNop(),
	}, backfill.Config{Owner: "c"})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		<-done
	})
	run := func(b *testing.B) {
		w.begin(fmt.Sprint("u", time.Now().UnixNano()), fill)
		watching, cancel := context.WithCancel(b.Context())
		defer cancel()
		for d := range w.store.Watch(watching) {
			if d.Update == nil {
				return
			}
		}
	}
	for _, bm := range []struct {
		name    string
		changes bool
	}{{"fill", true}, {"nothing to do", false}} {
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				if bm.changes {
					round++
				}
				run(b)
			}
			b.ReportMetric(benchRecords*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			if d := w.record(); !strings.HasPrefix(last(d).Outcome, "done; 100000 seen, ") {
				b.Errorf("%+v", last(d))
			}
		})
	}
}

func last(d upgradestate.Deployment) upgradestate.Entry { return d.History[len(d.History)-1] }
