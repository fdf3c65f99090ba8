package syncer_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// crooked is a target that keeps one record otherwise than it was written.
type crooked struct {
	record.Namespace
	key record.Key
	off atomic.Bool
}

func (c *crooked) bend(b record.Batch) record.Batch {
	if c.off.Load() {
		return b
	}
	groups := append([]record.GroupWrite(nil), b.Groups...)
	for i, g := range groups {
		writes := append([]record.Write(nil), g.Writes...)
		for k, w := range writes {
			if w.Key == c.key && w.Doc != nil {
				elems, _ := w.Doc.Elements()
				doc := bson.D{}
				for _, e := range elems {
					doc = append(doc, bson.E{Key: e.Key(), Value: e.Value()})
				}
				writes[k].Doc, _ = bson.Marshal(append(doc, bson.E{Key: "bent", Value: true}))
			}
		}
		groups[i].Writes = writes
	}
	b.Groups = groups
	return b
}

func (c *crooked) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return c.Namespace.Apply(ctx, c.bend(b))
}

func (c *crooked) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return c.Namespace.Load(ctx, c.bend(b))
}

// TestRecordThatDoesNotConverge: a record that the target never holds as it is made is parked
// alone, and once, with the field that differs: it is not taken out of the list by each write
// that does not help. Waived it holds nothing up; when it agrees it is no longer parked.
func TestRecordThatDoesNotConverge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		odd := keyIn(1, 0)
		w.put("a1", odd, 1)
		for shard := range ring {
			w.put("a1", keyIn(shard, 1), shard)
		}
		journal := &parkings{Journal: w.store, keys: map[string]string{}}
		target := &crooked{key: record.StringKey(odd)}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			target.Namespace, p.Journal, p.Target = p.Target, journal, target
			p.Comparer = verify.New(p.Source, p.Target, p.Direction)
		})
		w.begin()
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		w.put("a1", keyIn(2, 2), 5)
		w.eventually("another record", func() bool { return w.target("a2", keyIn(2, 2)) == 5 })
		for range 120 { // it stays in the list while it is tried again
			<-time.After(time.Second)
			if n := len(w.parked()); n != 1 {
				t.Fatalf("%d records are parked, want the one that differs", n)
			}
		}
		journal.want(t, odd)
		if why := journal.keys[odd]; !strings.Contains(why, "bent") || !strings.Contains(why, odd) {
			t.Errorf("parked for %q, want the field that differs", why)
		}
		if _, err := w.store.Waive(t.Context(), "a1", odd); err != nil {
			t.Fatal(err)
		}
		w.eventually("ready", w.allReady)
		target.off.Store(true)
		w.put("a1", odd, 2)
		w.eventually("agreement", func() bool { return len(w.parked()) == 0 })
		rec, err := w.dst.Get(t.Context(), w.tokens("v2")["a2"], record.StringKey(odd))
		if err != nil || bytes.Contains(rec.Doc, []byte("bent")) {
			t.Errorf("the target holds %s, %v", rec.Doc, err)
		}
		e.stop(t)
	})
}
