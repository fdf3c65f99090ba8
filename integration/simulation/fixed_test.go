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
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sync/errgroup"

	"dbcontroller/coord/memcoord"
	"dbcontroller/deployment"
	"dbcontroller/record"
	"dbcontroller/record/memstore"
	"dbcontroller/shards"
	"dbcontroller/switchover"
	"dbcontroller/syncer"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
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
	t     *testing.T
	coord *memcoord.Store
	store *deployment.Store
	db    map[string]*memstore.Store
	reg   *transform.Registry
	log   *zap.Logger
}

func newForeignSystem(ctx context.Context, t *testing.T, class record.FenceClass, ids []any) *foreignSystem {
	t.Helper()
	s := &foreignSystem{
		t: t, coord: memcoord.New(), reg: fixedRegistry(), log: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)),
		db: map[string]*memstore.Store{
			"v1": memstore.NewCluster(memstore.Options{Lag: 3, FixedFence: class}).Open("old"),
			"v2": memstore.NewCluster(memstore.Options{Start: 1 << 20, FixedFence: class}).Open("new"),
		},
	}
	for _, id := range ids {
		s.check(s.db["v1"].Foreign().Insert(ctx, docs, oldDoc(id, 0)))
	}
	s.store = deployment.New(s.coord, name, deployment.Config{})
	d, err := s.store.Create(ctx, "v1", ring)
	s.check(err)
	for _, v := range []string{"v1", "v2"} {
		ns, err := syncer.Provision(ctx, s.db[v], d, v, "mem:"+v, s.reg.Kinds(v), func(string) record.FenceClass { return "" })
		s.check(err)
		d, err = s.store.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
		s.check(err)
	}
	_, err = s.store.Apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: s.direction().Hash()}})
	s.check(err)
	return s
}

func (s *foreignSystem) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *foreignSystem) direction() transform.Direction { return must(s.reg.Direction("v1", "v2")) }

func (s *foreignSystem) controller(ctx context.Context, id string, tp *trap) *process {
	ctx, stop := context.WithCancel(ctx)
	p := &process{stop: stop, done: make(chan struct{}), conn: s.coord.Client()}
	fencers := map[string]record.Fencer{}
	for v, db := range s.db {
		fencers[v] = tp.wrap(p, v, db)
	}
	go func() {
		defer close(p.done)
		defer stop()
		store := deployment.New(p.conn, name, deployment.Config{})
		pool := shards.New(p.conn, shards.Config{Prefix: store.Root(), ID: id, Ring: ring})
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return pool.Run(ctx) })
		g.Go(func() error {
			return syncer.New(syncer.Parts{
				Source: s.db["v1"], Target: s.db["v2"], Direction: s.direction(), Deployments: store, Journal: store,
				Ownership: pool, Comparer: verify.New(s.db["v1"], s.db["v2"], s.direction()), Lease: pool.Lease, Log: s.log,
			}, syncer.Config{Owner: id, Epoch: 1, Ring: ring, Page: 7, Copy: true}).Run(ctx)
		})
		g.Go(func() error {
			return shards.Lead(ctx, p.conn, store.DriverKey(), id, s.log, func(ctx context.Context) error {
				return switchover.New(deployment.ForDriver{Store: store}, fencers,
					switchover.Config{HoldTimeout: 100 * time.Millisecond}, s.log).Run(ctx)
			})
		})
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			s.t.Errorf("controller %s: %v", id, err)
		}
	}()
	return p
}

func (s *foreignSystem) await(ctx context.Context, what string, ok func(upgradestate.Deployment) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var last upgradestate.Deployment
	for d := range s.store.Watch(ctx) {
		if last = d; ok(d) {
			return
		}
	}
	progress, _ := s.store.Progress(context.WithoutCancel(ctx))
	s.t.Fatalf("%s did not come: %+v %+v\n%+v", what, last, last.Upgrade, progress)
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
	d, err := a.s.store.Get(ctx)
	a.s.check(err)
	version, places := upgradestate.WritePlaces(d)
	if len(places) == 0 {
		return version, false
	}
	db := a.s.db[version].Foreign()
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
// version is active.
func TestForeignApplication(t *testing.T) {
	for _, class := range []record.FenceClass{record.FenceValidator, record.FenceView} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/%d", class, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { foreign(t, class, seed) })
			})
		}
	}
}

func foreign(t *testing.T, class record.FenceClass, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ids := anyIDs()
	s := newForeignSystem(ctx, t, class, append(ids, "rude"))
	// A client that cares for nothing deletes a document of its own right after the fence.
	late := 0
	tp := &trap{moment: moment{what: "fenced v1"}, spring: func(*process) {
		err := s.db["v1"].Foreign().Delete(ctx, docs, idOf("rude"))
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
	c1, c2 := s.controller(ctx, "controller-1", tp), s.controller(ctx, "controller-2", tp)
	pass(2 * time.Second)
	_, err := s.store.Apply(ctx, upgradestate.Begin{ID: "u", TargetVersion: "v2"})
	s.check(err)
	s.await(ctx, "the flip", func(d upgradestate.Deployment) bool {
		_, places := upgradestate.WritePlaces(d)
		return d.CurrentVersion == "v2" && len(places) > 0
	})
	pass(time.Second)
	if seed%2 == 1 {
		// An upgrade that runs changes nothing about it.
		back := must(s.reg.Direction("v2", "v1"))
		_, err := s.store.Apply(ctx, upgradestate.Begin{ID: "back", TargetVersion: "v1", TransformHash: back.Hash()})
		s.check(err)
		pass(time.Second)
	}
	// Another one has not heard of the switch, and deletes in the old database.
	before, err := s.db["v1"].Foreign().Documents(ctx, docs)
	s.check(err)
	for _, doc := range before[:5] {
		if s.db["v1"].Foreign().Delete(ctx, docs, doc.Lookup("_id")) == nil {
			late++
		}
	}
	if strong := class == record.FenceView; strong != (late == 0) {
		t.Errorf("%d late deletes passed a fence of class %s", late, class)
	}
	pass(3 * time.Second)
	stop()
	wg.Wait()
	counted := int64(0)
	progress, err := s.store.Progress(ctx)
	s.check(err)
	for _, p := range progress {
		counted += p.LateDeletes
	}
	if class == record.FenceValidator && counted != int64(late) {
		t.Errorf("%d late deletes were counted, %d passed", counted, late)
	}
	found, err := s.db["v2"].Foreign().Documents(ctx, docs)
	s.check(err)
	have := map[record.Key]int64{}
	for _, d := range found {
		if d.Lookup("twice").AsInt64() != 2*d.Lookup("n").AsInt64() {
			t.Errorf("document %s", d)
		}
		have[must(record.KeyOfDoc(d))] = d.Lookup("n").AsInt64()
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
