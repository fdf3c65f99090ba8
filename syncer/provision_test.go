package syncer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// The target of a copy is made with the indexes that refuse records. The others are only
// tried, so that one that cannot be built is found now, and leave nothing behind.
func TestProvisionOfATarget(t *testing.T) {
	t.Parallel()
	index := func(field string, more ...bson.E) bson.Raw {
		raw, err := bson.Marshal(append(bson.D{{Key: "key", Value: bson.D{{Key: field, Value: 1}}}, {Key: "name", Value: field + "_1"}}, more...))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	ttl := index("at", bson.E{Key: "expireAfterSeconds", Value: 60})
	unique := index("mail", bson.E{Key: "unique", Value: true})
	nameless, err := bson.Marshal(bson.D{{Key: "key", Value: "no document"}})
	if err != nil {
		t.Fatal(err)
	}
	d := upgradestate.New("services/s/deployments/d", "v1", 4)
	for _, c := range []struct {
		version string
		indexes []bson.Raw
		want    string // indexes there
		expiry  int64  // noted of at_1
		fails   bool
	}{
		{version: "v1", indexes: []bson.Raw{ttl, unique}, want: "at_1 mail_1"},
		{version: "v2", indexes: []bson.Raw{ttl, unique}, want: "mail_1", expiry: 60},
		{version: "v2", indexes: []bson.Raw{unique, nameless}, fails: true},
	} {
		store := memstore.New()
		spec := record.KindSpec{Name: "k", Shape: record.Shape{Indexes: c.indexes}}
		ns, err := syncer.Provision(t.Context(), store, d, c.version, "mem", []record.KindSpec{spec}, func(string) record.FenceClass { return "" })
		if trial := slices.ContainsFunc(store.Names(), func(n string) bool { return strings.HasPrefix(n, "dbc_") }); trial {
			t.Errorf("%s: %v is left", c.version, store.Names())
		}
		if c.fails {
			if err == nil {
				t.Errorf("%s: an index that cannot be built was taken", c.version)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := store.Describe(t.Context(), spec, ns.Kinds[0].Physical)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, ix := range info.Shape.Indexes {
			names = append(names, record.IndexName(ix))
		}
		if got := strings.Join(names, " "); got != c.want || ns.Kinds[0].Expiry["at_1"] != c.expiry {
			t.Errorf("%s: indexes %q, noted %v; want %q, %d", c.version, got, ns.Kinds[0].Expiry, c.want, c.expiry)
		}
	}
}

// badge is a record that one holder at most can have, made of holders that name it.
type badge struct {
	ID string `bson:"_id"`
	Of string `bson:"of"`
}

// badges is a world of holders1, who become holders2 and a badges2 for the badge they name.
func badges(t *testing.T) *world {
	t.Helper()
	r := transform.NewRegistry("badges")
	err := r.Add("v1", "v2", transform.Spec{
		Name: "badges", Revision: "1", Reversal: transform.ReversalNone,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "holders1"}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "holders2"}}, {
			KindSpec: record.KindSpec{Name: "badges2"},
			Content: func(r record.Record) (string, error) {
				var b badge
				err := bson.Unmarshal(r.Doc, &b)
				return string(record.StringKey(b.Of)), err
			},
		}}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			var out []record.Record
			for _, r := range src.Records {
				h := handOf(r)
				out = append(out, record.Record{Kind: "holders2", Key: r.Key, Doc: r.Doc})
				if h.Crew == "" {
					continue
				}
				doc, err := bson.Marshal(badge{h.Crew, h.ID})
				if err != nil {
					return nil, err
				}
				out = append(out, record.Record{Kind: "badges2", Key: record.StringKey(h.Crew), Doc: doc})
			}
			return out, nil
		},
		Down: func(transform.Group, transform.Group) ([]record.Record, error) { return nil, errors.New("not here") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return worldOn(t, r, memstore.Options{})
}

// hands writes a holder with the badge that it names; "" is none.
func (w *world) hands(id, badge string) {
	w.t.Helper()
	doc, err := bson.Marshal(hand{id, badge, 0})
	w.check(err)
	w.check(w.src.Write(w.t.Context(), w.tokens("v1"), []record.Mutation{{Kind: "holders1", Key: record.StringKey(id), Doc: doc}}))
}

// atFirst calls what it is given before the first comparison of a range.
type atFirst struct {
	syncer.Comparer
	once *sync.Once
	do   func()
}

func (a atFirst) SourcePage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error) {
	a.once.Do(a.do)
	return a.Comparer.SourcePage(ctx, src, dst, kind, r, limit)
}

// A record could not be copied, for another one held what it makes. That one gives it up just
// before the comparison, and the target hears of it between two comparisons of the first:
// what was in its way has changed in between, and nothing that would write the first.
func TestWhatWasInTheWayIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := badges(t)
		w.hands("first", "badge")
		w.hands("second", "badge")
		var slow atomic.Bool
		giveUp := func() {
			held := w.everything(w.dst, "v2", "holders2")
			for _, who := range []string{"first", "second"} {
				if _, ok := held[who]; ok {
					w.hands(who, "")
				}
			}
			if len(held) != 1 {
				t.Errorf("%d holders were copied, want one: the test shows nothing", len(held))
			}
			slow.Store(true)
		}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Comparer = atFirst{p.Comparer, new(sync.Once), giveUp}
			p.Target = faultstore.Wrap(p.Target, faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
				if op.Command == faultstore.Apply && slow.Load() {
					return faultstore.Fault{Latency: 1200 * time.Millisecond}
				}
				return faultstore.Fault{}
			}))
		})
		w.begin()
		w.eventually("ready", w.allReady)
		if held := w.everything(w.dst, "v2", "holders2"); len(held) != 2 {
			t.Errorf("%d holders are in the target, want both", len(held))
		}
		if b := w.everything(w.dst, "v2", "badges2"); len(b) != 1 {
			t.Errorf("%d badges are in the target, want one", len(b))
		}
		e.stop(t)
	})
}
