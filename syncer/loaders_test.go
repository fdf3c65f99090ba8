package syncer_test

import (
	"context"
	"fmt"
	"slices"
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
)

// holding is a target at which a write of one record waits until it is released. The process
// that waits does not notice that it is not wanted any longer.
type holding struct {
	record.Namespace
	what             string // load or apply
	key              record.Key
	strict           bool // guards of one version refuse a repair
	armed            atomic.Bool
	once             sync.Once
	entered, release chan struct{}
}

func hold(what, key string) *holding {
	h := &holding{what: what, key: record.StringKey(key), entered: make(chan struct{}), release: make(chan struct{})}
	h.armed.Store(true)
	return h
}

func (h *holding) wait(what string, b record.Batch) {
	for _, g := range b.Groups {
		if h.armed.Load() && what == h.what && slices.ContainsFunc(g.Writes, func(w record.Write) bool { return w.Key == h.key }) {
			h.once.Do(func() { close(h.entered) })
			<-h.release
		}
	}
}

func (h *holding) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	h.wait("load", b)
	return h.Namespace.Load(context.WithoutCancel(ctx), b)
}

func (h *holding) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	h.wait("apply", b)
	b.Repair = b.Repair && !h.strict
	return h.Namespace.Apply(context.WithoutCancel(ctx), b)
}

// still is a source whose clock stands still from the first read of a record on; of one that is
// gone, if it is to be.
type still struct {
	record.Namespace
	key  record.Key
	gone bool
	mu   sync.Mutex
	at   record.Version
}

func (s *still) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := s.Namespace.Read(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := slices.ContainsFunc(req.Select, func(sel record.Selector) bool { return sel.Key == s.key })
	if s.at.IsZero() && asked && err == nil && s.gone == (len(snap.Records) == 0) {
		s.at = snap.Version
	}
	if !s.at.IsZero() {
		snap.Version = s.at
	}
	return snap, err
}

func (w *world) engineAt(h *holding, owned ...int) *running {
	return w.engine(w.owner(owned...), func(p *syncer.Parts) { h.Namespace, p.Target = p.Target, h })
}

// intoFixed keeps records and puts them into a kind with a name of its own, which carries no
// guards. A record with n above 100 has a second one, in a kind where n is unique.
func intoFixed(t *testing.T) *world {
	unique, err := bson.Marshal(bson.D{{Key: "name", Value: "n_1"}, {Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "unique", Value: true}})
	if err != nil {
		t.Fatal(err)
	}
	r := transform.NewRegistry("items")
	err = r.Add("v1", "v2", transform.Spec{
		Name: "a", Revision: "1",
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "a1"}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "a2", Fixed: true}},
			{KindSpec: record.KindSpec{Name: "b2", Fixed: true, Shape: record.Shape{Indexes: []bson.Raw{unique}}},
				GroupOf: func(k record.Key) (string, error) { return string(k), nil },
				Select:  func(group string) record.Selector { return record.Selector{Kind: "b2", Key: record.Key(group)} }},
		}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			out := []record.Record{src.Records[0]}
			out[0].Kind = "a2"
			if itemOf(out[0]).N > 100 {
				second := out[0]
				second.Kind = "b2"
				out = append(out, second)
			}
			return out, nil
		},
		Down: func(src, _ transform.Group) ([]record.Record, error) {
			for _, rec := range src.Records {
				if rec.Kind == "a2" {
					rec.Kind = "a1"
					return []record.Record{rec}, nil
				}
			}
			return nil, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return worldOf(t, r)
}

// TestDeletedBetweenReadAndInsert: a record is deleted between its read and its insert, and the
// source stands still from then on, so that a repair has the version at which it was deleted.
func TestDeletedBetweenReadAndInsert(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %t", strict), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, h := intoFixed(t), hold("load", "victim")
				h.strict = strict
				w.put("a1", "other", 1)
				w.put("a1", "victim", 7)
				e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
					h.Namespace, p.Target = p.Target, h
					p.Source = &still{Namespace: p.Source, key: h.key, gone: true}
				})
				w.begin()
				<-h.entered
				w.write(w.src, "v1", record.Mutation{Kind: "a1", Key: record.StringKey("victim")})
				<-time.After(5 * time.Second) // the delete is applied
				close(h.release)
				<-time.After(time.Minute)
				_, back := w.everything(w.dst, "v2", "a2")["victim"]
				// Without the rule it stays for ever: that is what this test is able to see.
				if back != strict || w.allReady() == strict {
					t.Errorf("what was deleted is there: %t, ready: %t", back, w.allReady())
				}
				e.stop(t)
			})
		})
	}
}

// TestLoaderSleepsOverTheFence: another controller has taken over, loaded and compared when the
// insert of what was deleted meanwhile is sent.
func TestLoaderSleepsOverTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := intoFixed(t), hold("load", "victim")
		w.put("a1", "victim", 7)
		first := w.engineAt(h, 0, 1, 2, 3)
		w.begin()
		<-h.entered
		for n := range ring {
			w.free(n)
		}
		second := w.engine(w.owner(0, 1, 2, 3), nil)
		w.write(w.src, "v1", record.Mutation{Kind: "a1", Key: record.StringKey("victim")})
		w.eventually("ready", w.allReady)
		close(h.release)
		<-time.After(time.Minute)
		if _, back := w.everything(w.dst, "v2", "a2")["victim"]; back || !w.allReady() {
			t.Errorf("what was deleted is there: %t, ready: %t", back, w.allReady())
		}
		first.stop(t)
		second.stop(t)
	})
}

// TestRefusedGroupLeavesNothing: one record of a group cannot be stored. The group is parked, and
// the others that were loaded with it are gone: a person may leave it behind.
func TestRefusedGroupLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := intoFixed(t)
		w.put("a1", "first", 200)
		w.put("a1", "second", 200) // n is unique
		e := w.engine(w.owner(0, 1, 2, 3), nil)
		w.begin()
		w.eventually("one of the two to be parked", func() bool { return len(w.parked()) == 1 })
		<-time.After(time.Minute)
		parked := w.parked()
		if len(parked) != 1 {
			t.Fatalf("parked %+v, want one of the two", parked)
		}
		for kind, want := range map[string]int{"a2": 1, "b2": 1} {
			if have := w.everything(w.dst, "v2", kind); len(have) != want || have[parked[0].Key] != nil {
				t.Errorf("%s holds %v, parked is %s", kind, have, parked[0].Key)
			}
		}
		e.stop(t)
	})
}

// TestStrayIsInTheWay: a record that the source does not have holds the value of one that it
// has. The stray one goes, although the source stands still.
func TestStrayIsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := intoFixed(t)
		w.put("a1", "second", 200)
		w.check(w.dst.Foreign().Insert(t.Context(), w.tokens("v2")["b2"].Name, mutation("b2", "stray", 200).Doc)) // n is unique
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = &still{Namespace: p.Source, key: record.StringKey("second")}
		})
		w.begin()
		w.eventually("ready", w.allReady)
		for _, kind := range []string{"a2", "b2"} {
			if have := w.everything(w.dst, "v2", kind); len(have) != 1 || have["second"] == nil {
				t.Errorf("%s holds %v", kind, have)
			}
		}
		e.stop(t)
	})
}

// TestImageFromBeforeTheLoss: a controller sleeps with a change in its hand that is taken back
// while the history is lost. What the target holds is right, so that the comparison writes
// nothing there, and no guard would refuse what is applied late. It is refused by the name, or,
// where a kind keeps its name, by a guard that the rescan has written.
func TestImageFromBeforeTheLoss(t *testing.T) {
	keptName := func(t *testing.T) *world {
		r := transform.NewRegistry("items")
		keep := func(to string) transform.Func {
			return func(src, _ transform.Group) ([]record.Record, error) {
				out := slices.Clone(src.Records)
				for i := range out {
					out[i].Kind = to
				}
				return out, nil
			}
		}
		err := r.Add("v1", "v2", transform.Spec{
			Name: "a", Revision: "1", Up: keep("a2"), Down: keep("a1"),
			Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "a1"}}}},
			New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "a2", Fixed: true}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		w := worldOn(t, r, memstore.Options{}, "a2")
		w.put("a1", "left", 1)
		return w
	}
	for name, world := range map[string]func(*testing.T) *world{"renamed": newWorld, "kept": keptName} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, h, ear := world(t), hold("apply", "victim"), deaf()
				h.armed.Store(false)
				w.put("a1", "victim", 1)
				first := w.engineAt(h, 0, 1, 2, 3)
				w.begin()
				w.eventually("ready", w.allReady)
				h.armed.Store(true)
				w.put("a1", "victim", 2)
				<-h.entered
				for n := range ring {
					w.free(n)
				}
				ear.On()
				second := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = faultstore.Wrap(p.Source, ear) })
				w.lose(w.src, func() { w.put("a1", "victim", 1) }, ear)
				w.eventually("the loss", func() bool { return !w.allReady() })
				w.eventually("ready again", w.allReady)
				first.cancel() // its command goes out nevertheless, and it repairs nothing afterwards
				close(h.release)
				<-time.After(time.Minute)
				held := w.everything(w.dst, "v2", "a2")["victim"]
				if held == nil || itemOf(record.Record{Doc: held}).N != 1 {
					t.Errorf("the target holds %s, want 1", held)
				}
				first.stop(t)
				second.stop(t)
			})
		})
	}
}
