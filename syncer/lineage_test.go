package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// hand is a member of a crew; a crew becomes one record of how many hands it has and
// what their numbers sum up to.
type hand struct {
	ID   string `bson:"_id"`
	Crew string `bson:"crew"`
	N    int    `bson:"n"`
}

type crew struct {
	ID    string `bson:"_id"`
	Hands int    `bson:"hands"`
	Sum   int    `bson:"sum"`
}

// crews is a world of kinds hands1 and crews2; a crew of fewer hands than need cannot be
// transformed.
func crews(t *testing.T, need int) *world {
	t.Helper()
	return crewsOn(t, need, memstore.Options{Lag: 3})
}

// crewsOn is crews with a source that has the options.
func crewsOn(t *testing.T, need int, source memstore.Options) *world {
	t.Helper()
	r := transform.NewRegistry("crews")
	err := r.Add("v1", "v2", transform.Spec{
		Name: "crews", Revision: "1", Reversal: transform.ReversalNone,
		Old: transform.Side{Kinds: []transform.GroupedKind{{
			KindSpec: record.KindSpec{Name: "hands1"},
			Content:  func(r record.Record) (string, error) { return string(record.StringKey(handOf(r).Crew)), nil },
		}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "crews2"}}}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			name, _ := record.Key(src.Name).Name()
			c := crew{ID: name, Hands: len(src.Records)}
			for _, r := range src.Records {
				h := handOf(r)
				if h.N < 0 {
					return nil, errPoison
				}
				c.Sum += h.N
			}
			if c.Hands < need {
				return nil, errors.New("too few hands")
			}
			doc, err := bson.Marshal(c)
			return []record.Record{{Kind: "crews2", Key: record.Key(src.Name), Doc: doc}}, err
		},
		Down: func(transform.Group, transform.Group) ([]record.Record, error) { return nil, errors.New("not here") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return worldOn(t, r, source)
}

func handOf(r record.Record) (h hand) {
	if err := bson.Unmarshal(r.Doc, &h); err != nil {
		panic(err)
	}
	return h
}

// hire writes a hand; crew "" lets it go.
func (w *world) hire(id, crew string, n int) {
	w.t.Helper()
	m := record.Mutation{Kind: "hands1", Key: record.StringKey(id)}
	if crew != "" {
		var err error
		m.Doc, err = bson.Marshal(hand{id, crew, n})
		w.check(err)
	}
	w.check(w.src.Write(w.t.Context(), w.tokens("v1"), []record.Mutation{m}))
}

// hireAll writes hands in one transaction.
func (w *world) hireAll(hands ...hand) {
	w.t.Helper()
	var ms []record.Mutation
	for _, h := range hands {
		doc, err := bson.Marshal(h)
		w.check(err)
		ms = append(ms, record.Mutation{Kind: "hands1", Key: record.StringKey(h.ID), Doc: doc})
	}
	w.check(w.src.Write(w.t.Context(), w.tokens("v1"), ms))
}

// crew is what the target holds of one: "hands/sum", or nothing.
func (w *world) crew(name string) string {
	w.t.Helper()
	doc, ok := w.everything(w.dst, "v2", "crews2")[name]
	if !ok {
		return ""
	}
	var c crew
	w.check(bson.Unmarshal(doc, &c))
	return fmt.Sprintf("%d/%d", c.Hands, c.Sum)
}

// handIn is the i-th hand whose unit is in a shard.
func (w *world) handIn(shard, i int) string {
	w.t.Helper()
	for n := 0; ; n++ {
		key := fmt.Sprintf("hand-%d", n)
		id, _, err := w.dir.GroupOf("hands1", record.StringKey(key))
		w.check(err)
		if shards.Of(id.Name, ring) == shard {
			if i--; i < 0 {
				return key
			}
		}
	}
}

// A copy meets the members of a group in any order and on any controller. A group that
// cannot be transformed until it is complete is no failure meanwhile.
func TestCopyOfIncompleteGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, n = 4, 20
		w := crews(t, size)
		for i := range size {
			for c := range n {
				w.hire(fmt.Sprintf("%d-%d", i, c), fmt.Sprint("crew", c), i)
			}
		}
		var parked atomic.Int64
		watch := func(p *syncer.Parts) { p.Journal = countParks{p.Journal, &parked} }
		a, b := w.engine(w.owner(0, 1), watch), w.engine(w.owner(2, 3), watch)
		w.begin()
		w.eventually("ready", w.allReady)
		if parked.Load() != 0 {
			t.Errorf("%d times something was parked", parked.Load())
		}
		for c := range n {
			if got := w.crew(fmt.Sprint("crew", c)); got != "4/6" {
				t.Errorf("crew %d is %q", c, got)
			}
		}
		a.stop(t)
		b.stop(t)
	})
}

// Controllers that copy members of the same groups at the same time, at different speeds,
// lose none, though nobody compares afterwards.
func TestCopyOfGroupsByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, n = 12, 10
		w := crews(t, 0)
		for i := range size {
			for c := range n {
				w.hire(fmt.Sprintf("%d-%d", i, c), fmt.Sprint("crew", c), i)
			}
		}
		slow := func(ms int) func(*syncer.Parts) {
			return func(p *syncer.Parts) {
				p.Comparer = blind{}
				p.Target = faultstore.Wrap(p.Target, faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
					return faultstore.Fault{Latency: time.Duration(ms+len(op.Kinds)) * time.Millisecond}
				}))
			}
		}
		a, b := w.engine(w.owner(0, 1), slow(3)), w.engine(w.owner(2, 3), slow(5))
		w.begin()
		w.eventually("ready", w.allReady)
		for c := range n {
			if got := w.crew(fmt.Sprint("crew", c)); got != "12/66" {
				t.Errorf("crew %d is %q", c, got)
			}
		}
		a.stop(t)
		b.stop(t)
	})
}

// blind finds that everything is equal.
type blind struct{}

func (blind) Groups(context.Context, transform.View, transform.View, []transform.GroupID) ([]transform.Difference, error) {
	return nil, nil
}

func (blind) SourcePage(context.Context, transform.View, transform.View, string, record.Range, int) (transform.Comparison, error) {
	return transform.Comparison{Done: true}, nil
}

func (blind) TargetPage(context.Context, transform.View, transform.View, string, record.Range, int) (transform.Comparison, error) {
	return transform.Comparison{Done: true}, nil
}

type countParks struct {
	syncer.Journal
	n *atomic.Int64
}

func (c countParks) Park(ctx context.Context, p syncer.Parked, conditions ...coord.Condition) error {
	c.n.Add(1)
	return c.Journal.Park(ctx, p, conditions...)
}

// A member that cannot be transformed is parked by its name, with those of its group that
// change meanwhile; when it is corrected all of them come through, whichever engine parked them.
func TestParkedMemberAndItsSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		bad, good, other := w.handIn(0, 0), w.handIn(3, 0), w.handIn(2, 0)
		w.hire(bad, "red", -1)
		w.hire(good, "red", 1)
		w.hire(other, "blue", 5)
		a, b := w.engine(w.owner(0, 1), nil), w.engine(w.owner(2, 3), nil)
		names := func() (keys []string) {
			for _, p := range w.parked() {
				// A comparison that comes before the member is parked may park the whole group, for its
				// difference or because it cannot be written. Retries and comparisons end that entry.
				if p.Kind == "crews2" && p.Key == "red" && (strings.Contains(p.Error, transform.ErrDiffer.Error()) || strings.Contains(p.Error, errPoison.Error())) {
					continue
				}
				if p.Kind != "hands1" || !strings.Contains(p.Error, "red") || !strings.Contains(p.Error, errPoison.Error()) {
					t.Errorf("parked %s/%s: %s", p.Kind, p.Key, p.Error)
				}
				keys = append(keys, p.Key)
			}
			slices.Sort(keys)
			return keys
		}
		w.eventually("parking after the copy", func() bool { return slices.Contains(names(), bad) })
		w.hire(good, "red", 2)
		w.eventually("parking of both", func() bool { return len(names()) == 2 })
		w.begin()
		<-time.After(10 * time.Second)
		if w.allReady() {
			t.Error("ready with parked members")
		}
		if got := w.crew("blue"); got != "1/5" {
			t.Errorf("blue is %q", got)
		}
		w.hire(bad, "red", 7) // it is corrected, and all of them are written
		corrected := time.Now()
		w.eventually("the end of it", func() bool { return len(names()) == 0 })
		if took := time.Since(corrected); took > time.Second {
			t.Errorf("a sibling stayed parked for %s although its group was written", took)
		}
		w.eventually("the end of the group's entry", func() bool { return len(w.parked()) == 0 })
		w.hire(bad, "red", -1)
		w.eventually("parking again", func() bool { return len(names()) > 0 })
		w.hire(bad, "blue", 3) // it leaves, and all is well
		w.eventually("the end of it again", func() bool { return len(w.parked()) == 0 })
		w.eventually("ready", w.allReady)
		if red, blue := w.crew("red"), w.crew("blue"); red != "1/2" || blue != "2/8" {
			t.Errorf("red is %q, blue is %q", red, blue)
		}
		a.stop(t)
		b.stop(t)
	})
}

// Siblings that only together can be transformed, and that two controllers have parked,
// each alone, find each other.
func TestParkedSiblingsOfTwoControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 2)
		one, two := w.handIn(0, 0), w.handIn(3, 0)
		w.hire(one, "red", 1)
		w.hire(w.handIn(1, 0), "red", 2)
		w.hire(two, "blue", 3)
		w.hire(w.handIn(2, 0), "blue", 4)
		w.hire(w.handIn(1, 1), "red", 5)
		w.hire(w.handIn(2, 1), "blue", 6)
		a, b := w.engine(w.owner(0, 1), nil), w.engine(w.owner(2, 3), nil)
		w.eventually("the copy", func() bool { return a.synced() && b.synced() && w.crew("red") == "3/8" && w.crew("blue") == "3/13" })
		w.hire(one, "green", 1)
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		if red, green := w.crew("red"), w.crew("green"); red != "3/8" || green != "" {
			t.Errorf("red is %q, green is %q: it has left and not arrived", red, green)
		}
		w.hire(two, "green", 1)
		w.eventually("green", func() bool { return w.crew("green") == "2/2" })
		w.eventually("the end of it", func() bool { return len(w.parked()) == 0 })
		if red, blue := w.crew("red"), w.crew("blue"); red != "2/7" || blue != "2/10" {
			t.Errorf("red is %q, blue is %q", red, blue)
		}
		a.stop(t)
		b.stop(t)
	})
}

// What cannot move to another group does not hold up those who change with it and stay.
func TestFailureHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		w.hire("mover", "red", 1)
		w.hire("stayer", "red", 1)
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.eventually("the copy", func() bool { return w.crew("red") == "2/2" && e.synced() })
		<-time.After(3 * time.Second)
		var ms []record.Mutation
		for _, h := range []hand{{"mover", "blue", -1}, {"stayer", "red", 5}} {
			doc, err := bson.Marshal(h)
			w.check(err)
			ms = append(ms, record.Mutation{Kind: "hands1", Key: record.StringKey(h.ID), Doc: doc})
		}
		changed := time.Now()
		w.check(w.src.Write(t.Context(), w.tokens("v1"), ms))
		w.eventually("the change of who stays", func() bool { return w.crew("red") == "1/5" })
		if took := time.Since(changed); took > time.Second {
			t.Errorf("the change of who stays took %s", took)
		}
		w.eventually("parking", func() bool { return len(w.parked()) == 1 })
		if p := w.parked()[0]; p.Key != "mover" {
			t.Errorf("%s is parked", p.Key)
		}
		e.stop(t)
	})
}

// A record in the target that no group makes is removed once everything is copied, by
// whichever shard; not while its group may still come.
func TestForeignRecordInTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		for i := range 40 {
			w.hire(fmt.Sprint("h", i), "red", 1)
		}
		foreign, err := bson.Marshal(crew{"ghost", 1, 1})
		w.check(err)
		w.check(w.dst.Write(t.Context(), w.tokens("v2"), []record.Mutation{{Kind: "crews2", Key: record.StringKey("ghost"), Doc: foreign}}))
		a := w.engine(w.owner(0, 1, 2), nil)
		<-time.After(10 * time.Second) // shard 3 is unowned
		if w.crew("ghost") == "" {
			t.Error("removed although a shard is not copied")
		}
		b := w.engine(w.owner(3), nil)
		w.begin()
		w.eventually("ready", w.allReady)
		if got := w.crew("ghost"); got != "" {
			t.Errorf("the foreign record is still there: %s", got)
		}
		if got := w.crew("red"); got != "40/40" {
			t.Errorf("red is %q", got)
		}
		a.stop(t)
		b.stop(t)
	})
}

// What the target cannot store as one is parked with the reason, and comes through when
// it is smaller.
func TestGroupTooLargeForTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		for i := range 8 {
			w.hire(fmt.Sprint("h", i), "red", 1)
		}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Target = narrow{p.Target} })
		w.eventually("parking", func() bool { return len(w.parked()) > 0 })
		for _, p := range w.parked() {
			if !strings.Contains(p.Error, "red") || !strings.Contains(p.Error, errNarrow.Error()) {
				t.Errorf("parked: %s", p.Error)
			}
		}
		for i := 2; i < 8; i++ {
			w.hire(fmt.Sprint("h", i), fmt.Sprint("c", i), 1)
		}
		w.eventually("the end of it", func() bool { return len(w.parked()) == 0 })
		w.begin()
		w.eventually("ready", w.allReady)
		if got := w.crew("red"); got != "2/2" {
			t.Errorf("red is %q", got)
		}
		e.stop(t)
	})
}

// narrow refuses crews of more than three hands.
type narrow struct{ record.Namespace }

var errNarrow = errors.New("at most three hands fit")

func (n narrow) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	refused := func(g record.GroupWrite) bool {
		return slices.ContainsFunc(g.Writes, func(w record.Write) bool {
			var c crew
			return w.Kind == "crews2" && w.Doc != nil && bson.Unmarshal(w.Doc, &c) == nil && c.Hands > 3
		})
	}
	var out []record.Result
	for _, g := range b.Groups {
		if refused(g) {
			out = append(out, record.Result{Outcome: record.Refused, Err: errNarrow})
			continue
		}
		res, err := n.Namespace.Apply(ctx, record.Batch{Tokens: b.Tokens, Epoch: b.Epoch, Groups: []record.GroupWrite{g}})
		if err != nil {
			return nil, err
		}
		out = append(out, res...)
	}
	return out, nil
}

// Lineage that an earlier direction has left in the source is fenced with the rest, and
// nobody waits for its changes.
func TestLineageInTheSourceIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := crews(t, 0)
		w.hire("h", "red", 1)
		kind := transform.LineageKind("of earlier days", "v0", "v1")
		d, err := w.store.Get(t.Context())
		w.check(err)
		made, err := syncer.Provision(t.Context(), w.src, d, "v1", "mem:v1", []record.KindSpec{{Name: kind}}, func(string) record.FenceClass { return "" })
		w.check(err)
		w.apply(upgradestate.AnnounceNamespace{Namespace: made})
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.begin()
		w.eventually("ready", w.allReady)
		w.apply(upgradestate.StartSwitch{ID: "u"})
		w.apply(upgradestate.Held{ID: "u"})
		w.apply(w.fence("hands1"))
		w.apply(w.fence(kind))
		w.eventually("drain", w.allReady)
		e.stop(t)
	})
}
