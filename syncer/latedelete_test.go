package syncer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// TestLateDeleteOfARecordOfTheReverseSync: a delete passes the fence of the old version and removes a
// record that the reverse sync has written. The record comes back although its guard is not older
// than what a read may return: reads lag, or the served version stands still since.
func TestLateDeleteOfARecordOfTheReverseSync(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lag   uint64
		still bool
	}{
		"reads lag":          {lag: 1000},
		"v2 stands still":    {still: true},
		"nothing in the way": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := behindValidator(t, c.lag)
				var source record.Namespace = w.dst
				if c.still {
					source = &still{Namespace: w.dst, key: record.StringKey("late")}
				}
				o := w.owner(0, 1, 2, 3)
				forward := w.engine(o, nil)
				w.eventually("the copy", forward.synced)
				w.flip(w.position(w.dst))
				back := w.engineWith(o, func(p *syncer.Parts) {
					p.Source, p.Target, p.Direction = source, w.src, w.back
					p.Comparer = verify.New(source, w.src, w.back)
				}, func(c *syncer.Config) { c.Epoch = 2 })
				forward.engine.HandOver()
				w.eventually("the reverse sync", back.synced)
				w.write(w.dst, "v2", mutation("a2", "late", 5))
				w.eventually("the record in v1", func() bool { return w.documents("a1") == 2 })
				// Once it is compared, no comparison finds the delete.
				<-time.After(5 * time.Second)
				doc := mutation("a1", "late", 5).Doc
				w.check(w.src.Foreign().Delete(t.Context(), "a1", doc.Lookup("_id")))
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

// ids has the names of a collection's documents in v1.
func (w *world) ids(name string) (ids []string) {
	w.t.Helper()
	docs, err := w.src.Foreign().Documents(context.Background(), name)
	w.check(err)
	for _, doc := range docs {
		ids = append(ids, doc.Lookup("_id").StringValue())
	}
	return ids
}

// behindValidator keeps the records of an application's collection. Its fence lets deletes through.
func behindValidator(t *testing.T, lag uint64) *world {
	t.Helper()
	return behind(t, record.FenceValidator, lag)
}

// behind is behindValidator for a fence class.
func behind(t *testing.T, class record.FenceClass, lag uint64) *world {
	t.Helper()
	return behindOf(t, memstore.Options{FixedFence: class}, lag, "a")
}

// behindOf is behind for collections with these first letters, in a source with these options.
func behindOf(t *testing.T, source memstore.Options, lag uint64, kinds ...string) *world {
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
	for _, k := range kinds {
		err := r.Add("v1", "v2", transform.Spec{
			Name: k, Revision: "1", Up: keep(k + "2"), Down: keep(k + "1"),
			Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: k + "1", Fixed: true}}}},
			New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: k + "2"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w := worldBetween(t, r, source, memstore.Options{Start: 1 << 20, Lag: lag})
	var err error
	w.back, err = r.Direction("v2", "v1")
	w.check(err)
	return w
}
