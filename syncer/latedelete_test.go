package syncer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// TestLateDeleteOfARecordJustWritten: a delete passes the fence of the old version and removes a
// record that the reverse sync has just written. The served version stands still since, so the
// record comes back although its guard has the version of the read.
func TestLateDeleteOfARecordJustWritten(t *testing.T) {
	t.Parallel()
	for _, lag := range []uint64{0, 3} {
		t.Run(fmt.Sprint("reads lag by ", lag), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := behindValidator(t, lag)
				o := w.owner(0, 1, 2, 3)
				forward := w.engine(o, nil)
				w.eventually("the copy", forward.synced)
				w.flip(w.position(w.dst))
				back := w.follow(2, w.dst, w.src, w.back, o)
				forward.engine.HandOver()
				w.eventually("the reverse sync", back.synced)
				w.write(w.dst, "v2", mutation("a2", "late", 5))
				w.eventually("the record in v1", func() bool { return w.documents("a1") == 2 })
				// Once it is compared, no comparison finds the delete.
				<-time.After(5 * time.Second)
				doc := mutation("a1", "late", 5).Doc
				w.check(w.src.Foreign().Delete(t.Context(), "a1", doc.Lookup("_id")))
				if n := w.documents("a1"); n != 1 {
					t.Fatalf("%d documents after the delete", n)
				}
				w.eventually("the record in v1 again", func() bool { return w.documents("a1") == 2 })
				forward.stop(t)
				back.stop(t)
			})
		})
	}
}

// documents counts the documents of a collection of v1, as its application does.
func (w *world) documents(name string) int {
	w.t.Helper()
	docs, err := w.src.Foreign().Documents(context.Background(), name)
	w.check(err)
	return len(docs)
}

// behindValidator keeps the records of an application's collection. Its fence lets deletes through.
func behindValidator(t *testing.T, lag uint64) *world {
	t.Helper()
	keep := func(to string) transform.Func {
		return func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			rec := src.Records[0]
			rec.Kind = to
			return []record.Record{rec}, nil
		}
	}
	r := transform.NewRegistry("items")
	err := r.Add("v1", "v2", transform.Spec{
		Name: "a", Revision: "1", Up: keep("a2"), Down: keep("a1"),
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "a1", Fixed: true}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "a2"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := worldBetween(t, r, memstore.Options{FixedFence: record.FenceValidator}, memstore.Options{Start: 1 << 20, Lag: lag})
	w.back, err = r.Direction("v2", "v1")
	w.check(err)
	return w
}
