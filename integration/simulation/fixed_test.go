package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// docs is the collection of an application that knows nothing of this project: in v1 a
// document is {_id, n}, in v2 {_id, n, twice}.
const docs = "docs"

func fixedRegistry() *transform.Registry {
	r := transform.NewRegistry(docs)
	side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: docs, Fixed: true}}}}
	field := func(d bson.Raw, name string) bson.RawValue { return d.Lookup(name) }
	err := r.Add("v1", "v2", transform.Spec{
		Name: docs, Revision: "1", Old: side, New: side,
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			d := src.Records[0].Doc
			n := field(d, "n").AsInt64()
			doc := must(bson.Marshal(bson.D{{Key: "_id", Value: field(d, "_id")}, {Key: "n", Value: n}, {Key: "twice", Value: 2 * n}}))
			return []record.Record{{Kind: docs, Key: src.Records[0].Key, Doc: doc}}, nil
		},
		Down: func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			d := src.Records[0].Doc
			doc := must(bson.Marshal(bson.D{{Key: "_id", Value: field(d, "_id")}, {Key: "n", Value: field(d, "n").AsInt64()}}))
			return []record.Record{{Kind: docs, Key: src.Records[0].Key, Doc: doc}}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return r
}

// foreignSystem is an application of its own over two databases, and controllers.
type foreignSystem struct {
	*system
	stores map[string]*memstore.Store
}

func newForeignSystem(ctx context.Context, t *testing.T, class record.FenceClass, ids []any) *foreignSystem {
	t.Helper()
	stores := map[string]*memstore.Store{
		"v1": memstore.NewCluster(memstore.Options{Lag: 3, FixedFence: class}).Open("old"),
		"v2": memstore.NewCluster(memstore.Options{Start: 1 << 20, FixedFence: class}).Open("new"),
	}
	for _, id := range ids {
		if err := stores["v1"].Foreign().Insert(ctx, docs, oldDoc(id, 0)); err != nil {
			t.Fatal(err)
		}
	}
	s := newSystemOf(ctx, t, map[string]database{"v1": stores["v1"], "v2": stores["v2"]}, fixedRegistry(), nil)
	s.holdTimeout = 100 * time.Millisecond
	return &foreignSystem{s, stores}
}

func oldDoc(id any, n int64) bson.Raw {
	return must(bson.Marshal(bson.D{{Key: "_id", Value: id}, {Key: "n", Value: n}}))
}

func newDoc(id any, n int64) bson.Raw {
	return must(bson.Marshal(bson.D{{Key: "_id", Value: id}, {Key: "n", Value: n}, {Key: "twice", Value: 2 * n}}))
}

func idOf(id any) bson.RawValue {
	return bson.Raw(must(bson.Marshal(bson.D{{Key: "_id", Value: id}}))).Lookup("_id")
}

// anyIDs are names of all kinds, as collections in the wild mix them.
func anyIDs() []any {
	ids := []any{true, false, bson.NewObjectID(), bson.DateTime(5), bson.D{{Key: "a", Value: 1}}, bson.D{{Key: "a", Value: 2.5}}, bson.Null{}, bson.MinKey{}, bson.MaxKey{}}
	for i := range 15 {
		ids = append(ids, fmt.Sprint("s", i), int32(i), int64(1)<<40+int64(i), float64(i)+0.5, bson.Binary{Data: []byte{byte(i)}})
	}
	return ids
}

// application writes its documents where the Deployment says, each of its ids by one
// goroutine. A write that is refused, or that finds writes held, is asked about again.
type application struct {
	s    *foreignSystem
	mu   sync.Mutex
	want map[int]int64 // by index of the id; -1 is deleted
	ids  []any
}

// write sends one write to the place of the moment, and reports whether it was done.
func (a *application) write(ctx context.Context, i int, n int64) (string, bool) {
	d, err := a.s.admin.Get(ctx)
	a.s.check(err)
	version, places := upgradestate.WritePlaces(d)
	if len(places) == 0 {
		return version, false
	}
	db := a.s.stores[version].Foreign()
	switch {
	case n < 0:
		err = db.Delete(ctx, docs, idOf(a.ids[i]))
	case version == "v1":
		err = db.Put(ctx, docs, oldDoc(a.ids[i], n))
	default:
		err = db.Put(ctx, docs, newDoc(a.ids[i], n))
	}
	if err != nil && !errors.Is(err, memstore.ErrRejected) {
		a.s.t.Errorf("write: %v", err)
	}
	return version, err == nil
}

func (a *application) run(ctx context.Context, seed uint64, writer, writers int) {
	rng := rand.New(rand.NewPCG(seed, uint64(writer)))
	for n := int64(1); ctx.Err() == nil; n++ {
		i := rng.IntN(len(a.ids)/writers)*writers + writer
		if rng.IntN(4) == 0 {
			n = -n
		}
		for {
			if _, done := a.write(context.WithoutCancel(ctx), i, n); done {
				break
			}
			pass(time.Millisecond)
		}
		a.mu.Lock()
		a.want[i] = max(n, -1)
		a.mu.Unlock()
		n = max(n, -n)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.IntN(60)) * time.Millisecond):
		}
	}
}

// TestForeignApplication moves the collection of an application that follows the
// Deployment, by every fence class, with names of all types. With the weakest class,
// deletes that come after the fence pass: they are counted, and not applied once the new
// version is active. Where the old one is kept in sync, they are undone there, too; then those
// of documents that this has written are not told from its own.
func TestForeignApplication(t *testing.T) {
	for _, class := range []record.FenceClass{record.FenceValidator, record.FenceView} {
		for _, oneWay := range []bool{false, true} {
			for seed := range seeds(12) {
				t.Run(fmt.Sprintf("%s/one way %t/%d", class, oneWay, seed), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { foreign(t, class, oneWay, seed) })
				})
			}
		}
	}
}

// lateApplier is a database that takes a minute for each write.
type lateApplier struct{ record.Namespace }

func (l lateApplier) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute):
	}
	return l.Namespace.Apply(ctx, b)
}

func foreign(t *testing.T, class record.FenceClass, oneWay bool, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ids := anyIDs()
	s := newForeignSystem(ctx, t, class, append(ids, "rude"))
	s.oneWay = oneWay
	// A client that cares for nothing deletes a document of its own right after the fence.
	late := 0
	tp := &trap{moment: moment{what: "fenced v1"}, spring: func(*process) {
		err := s.stores["v1"].Foreign().Delete(ctx, docs, idOf("rude"))
		if err == nil {
			late++
		}
	}}
	a := &application{s: s, want: map[int]int64{}, ids: ids}
	writing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { a.run(writing, seed, w, 4) })
	}
	killed := seed%3 == 0
	slowly := func(p *process, version string, ns record.Namespace) record.Namespace {
		if ns = tp.wrap(p, version, ns); killed && version == "v1" {
			return lateApplier{ns}
		}
		return ns
	}
	c1, c2 := s.controllerProcess(ctx, "controller-1", slowly), s.controllerProcess(ctx, "controller-2", slowly)
	pass(2 * time.Second)
	_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "u", TargetVersion: "v2"})
	s.check(err)
	s.await(ctx, "the flip", func(d upgradestate.Deployment) bool {
		_, places := upgradestate.WritePlaces(d)
		return d.CurrentVersion == "v2" && len(places) > 0
	})
	pass(time.Second)
	asksBack := seed%2 == 1
	if asksBack {
		// An upgrade that runs changes nothing about it.
		back := must(s.registry.Direction("v2", "v1"))
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "back", TargetVersion: "v1", TransformHash: back.Hash(), Policy: upgradestate.Policy{Hold: true}})
		s.check(err)
		pass(time.Second)
	}
	if killed || seed%4 < 2 { // nobody writes again what is deleted
		stop()
		wg.Wait()
		pass(time.Second)
	}
	// Another one has not heard of the switch, and deletes in the old database.
	before, err := s.stores["v1"].Foreign().Documents(ctx, docs)
	s.check(err)
	for _, doc := range before[:5] {
		if s.stores["v1"].Foreign().Delete(ctx, docs, doc.Lookup("_id")) == nil {
			late++
		}
	}
	// The changes go on behind them.
	pass(100 * time.Millisecond)
	s.check(s.stores["v1"].Foreign().Put(ctx, "unrelated", oldDoc(idOf("x"), 0)))
	if strong := class == record.FenceView; strong != (late == 0) {
		t.Errorf("%d late deletes passed a fence of class %s", late, class)
	}
	if killed { // while they are undone, and when the places of idle shards have been stored, too
		pass(time.Duration(32+rand.New(rand.NewPCG(seed, 77)).IntN(25)) * time.Second)
		c1.kill()
		c2.kill()
		plain := func(_ *process, _ string, ns record.Namespace) record.Namespace { return ns }
		c1, c2 = s.controllerProcess(ctx, "controller-3", plain), s.controllerProcess(ctx, "controller-4", plain)
		pass(30 * time.Second) // until the locks of those that were killed have expired
	}
	pass(3 * time.Second)
	stop()
	wg.Wait()
	counted := int64(0)
	progress, err := s.admin.Progress(ctx)
	s.check(err)
	for _, p := range progress {
		counted += p.LateDeletes
	}
	synced := !oneWay || asksBack
	// Who takes over may see the last ones again.
	if least := min(1, late); counted < int64(least) || !killed && (counted > int64(late) || !synced && counted != int64(late)) {
		t.Errorf("%d late deletes were counted, %d passed", counted, late)
	}
	found, err := s.stores["v2"].Foreign().Documents(ctx, docs)
	s.check(err)
	have := map[record.Key]int64{}
	for _, d := range found {
		if d.Lookup("twice").AsInt64() != 2*d.Lookup("n").AsInt64() {
			t.Errorf("document %s", d)
		}
		have[must(record.KeyOfDoc(d))] = d.Lookup("n").AsInt64()
	}
	if synced {
		old, err := s.stores["v1"].Foreign().Documents(ctx, docs)
		s.check(err)
		if len(old) != len(have) {
			t.Errorf("v1 has %d documents, v2 %d", len(old), len(have))
		}
		for _, d := range old {
			if n, there := have[must(record.KeyOfDoc(d))]; !there || n != d.Lookup("n").AsInt64() {
				t.Errorf("v1 has %s, in v2 it is %d (%t)", d, n, there)
			}
		}
	}
	for i, id := range ids {
		key := must(record.KeyOfDoc(oldDoc(id, 0)))
		n, there := have[key]
		delete(have, key)
		if want := a.want[i]; there != (want >= 0) || there && n != want {
			t.Errorf("document %v is %d (%t), want %d", id, n, there, want)
		}
	}
	delete(have, record.StringKey("rude")) // class view kept it
	if len(have) > 0 {
		t.Errorf("%d documents that nobody wrote", len(have))
	}
	cancel()
	c1.kill()
	c2.kill()
}
