package syncer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// weighed counts the bytes that reads bring, and remembers the most of several records.
type weighed struct {
	record.Namespace
	most *atomic.Int64
}

func (w weighed) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := w.Namespace.Read(ctx, req)
	var bytes int64
	for _, r := range snap.Records {
		bytes += int64(len(r.Doc))
	}
	if len(snap.Records) > 1 && bytes > w.most.Load() {
		w.most.Store(bytes)
	}
	return snap, err
}

// TestLargeRecords: records of 1 to 15 MiB are copied, followed and compared, and no read
// brings more of them at once than its bound, however many change together.
func TestLargeRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		large := func(i, mib int) record.Mutation {
			key := keyIn(i%ring, i/ring)
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "n", Value: i}, {Key: "filler", Value: strings.Repeat("x", mib<<20-200)}})
			w.check(err)
			return record.Mutation{Kind: "a1", Key: record.StringKey(key), Doc: doc}
		}
		for i := range 30 {
			w.write(w.src, "v1", large(i, 1))
		}
		w.write(w.src, "v1", large(30, 15))
		var most atomic.Int64
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source, p.Target = weighed{p.Source, &most}, weighed{p.Target, &most}
			p.Comparer = verify.New(p.Source, p.Target, p.Direction)
		})
		w.begin()
		w.eventually("ready", w.allReady)
		var all []record.Mutation
		for i := range 30 { // in one transaction, and so in one batch
			all = append(all, large(i, 1))
			all[i].Doc = append(bson.Raw(nil), all[i].Doc...)
			all[i].Doc[len(all[i].Doc)-10] = 'y'
		}
		w.write(w.src, "v1", all...)
		w.eventually("the change", func() bool {
			rec, err := w.dst.Get(t.Context(), w.tokens("v2")["a2"], all[29].Key)
			return err == nil && string(rec.Doc) == string(all[29].Doc)
		})
		w.eventually("ready again", w.allReady)
		if got := most.Load(); got > transform.ReadBytes || got == 0 {
			t.Errorf("a read brought %d MiB at once", got>>20)
		}
		if _, err := w.dst.Get(t.Context(), w.tokens("v2")["a2"], record.StringKey(keyIn(30%ring, 30/ring))); err != nil {
			t.Errorf("the largest record: %v", err)
		}
		e.stop(t)
	})
}
