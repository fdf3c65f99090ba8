package syncer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// parkings is a Journal that remembers the keys of all that was ever parked.
type parkings struct {
	syncer.Journal
	mu   sync.Mutex
	keys map[string]string
}

func (p *parkings) Park(ctx context.Context, what syncer.Parked, right ...coord.Condition) error {
	p.mu.Lock()
	p.keys[what.Key] = what.Error
	p.mu.Unlock()
	return p.Journal.Park(ctx, what, right...)
}

func (p *parkings) want(t *testing.T, keys ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if _, there := p.keys[key]; !there {
			t.Errorf("%s was never parked", key)
		}
	}
	if len(p.keys) != len(keys) {
		t.Errorf("parked were %v, want %v", p.keys, keys)
	}
}

// uniqueN builds a unique index on n in the target's a2.
func (w *world) uniqueN() {
	w.t.Helper()
	spec, err := bson.Marshal(bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "name", Value: "n_1"}, {Key: "unique", Value: true}})
	w.check(err)
	w.check(w.dst.BuildIndexes(w.t.Context(), w.tokens("v2")["a2"], record.KindSpec{Name: "a2", Shape: record.Shape{Indexes: []bson.Raw{spec}}}))
}

// sized is a record of about so many bytes.
func (w *world) sized(key string, n, bytes int) record.Mutation {
	w.t.Helper()
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "n", Value: n}, {Key: "filler", Value: strings.Repeat("x", bytes)}})
	w.check(err)
	return record.Mutation{Kind: "a1", Key: record.StringKey(key), Doc: doc}
}

// TestLargeRecordsExchangeUniqueValues: records that exchange unique values in one transaction
// come over, however large they are and whichever controller has them, and nothing is ever
// parked for it: two of 9 MB, a ring of five of 4 MB, and the small ones next to them.
func TestLargeRecordsExchangeUniqueValues(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		rings := [][]string{{}, {}}
		sizes := []int{9 << 20, 4 << 20}
		for i := range 2 {
			rings[0] = append(rings[0], keyIn(2*i, 0))
		}
		for i := range 5 {
			rings[1] = append(rings[1], keyIn(i%ring, 1+i/ring))
		}
		const others = 150
		for i := range others {
			rings, sizes = append(rings, []string{keyIn(0, 10+i), keyIn(3, 10+i)}), append(sizes, 10)
		}
		// state has each record of a ring hold the number of the one so many behind it.
		state := func(by int) (out []record.Mutation) {
			for r, keys := range rings {
				for i, key := range keys {
					out = append(out, w.sized(key, 100*r+(i+by)%len(keys), sizes[r]))
				}
			}
			return out
		}
		w.write(w.src, "v1", state(0)...)
		journal := &parkings{Journal: w.store, keys: map[string]string{}}
		counted := func(p *syncer.Parts) { p.Journal = journal }
		a, b := w.engine(w.owner(0, 1), counted), w.engine(w.owner(2, 3), counted)
		w.begin()
		w.eventually("ready", w.allReady)
		for by := 1; by <= 2; by++ {
			want := state(by)
			w.write(w.src, "v1", want...)
			w.eventually(fmt.Sprintf("exchange %d", by), func() bool {
				for _, m := range want {
					rec, err := w.dst.Get(t.Context(), w.tokens("v2")["a2"], m.Key)
					if err != nil || string(rec.Doc) != string(m.Doc) {
						return false
					}
				}
				return true
			})
		}
		w.eventually("ready again", w.allReady)
		journal.want(t)
		a.stop(t)
		b.stop(t)
	})
}

// TestUniqueValueThatIsKept: a record whose value another one keeps is parked alone, with a
// reason that names the other. Those that exchange values next to it come over. When the
// value is free it follows by itself.
func TestUniqueValueThatIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uniqueN()
		keeper, wants, one, two := keyIn(0, 0), keyIn(1, 0), keyIn(2, 0), keyIn(3, 0)
		for i, key := range []string{keeper, wants, one, two} {
			w.put("a1", key, i)
		}
		journal := &parkings{Journal: w.store, keys: map[string]string{}}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Journal = journal })
		w.begin()
		w.eventually("ready", w.allReady)
		w.write(w.src, "v1", w.sized(wants, 0, 1), w.sized(one, 3, 1), w.sized(two, 2, 1))
		w.eventually("the exchange", func() bool { return w.target("a2", one) == 3 && w.target("a2", two) == 2 })
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		<-time.After(time.Minute)
		journal.want(t, wants)
		if why := journal.keys[wants]; !strings.Contains(why, keeper) || !strings.Contains(why, "n_1") {
			t.Errorf("parked for %q, want the index and %s", why, keeper)
		}
		w.put("a1", keeper, 7)
		w.eventually("the value", func() bool { return w.target("a2", wants) == 0 && len(w.parked()) == 0 })
		w.eventually("ready again", w.allReady)
		e.stop(t)
	})
}
