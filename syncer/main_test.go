package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/shardstest"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	name = "services/items/deployments/unit"
	ring = 4
)

// item is a record of either version; the transformers of all kinds keep it as it is.
type item struct {
	ID string `bson:"_id"`
	N  int    `bson:"n"`
}

var errPoison = errors.New("n is negative")

// world is two databases, a coordination store, and the deployment between them: kinds a1,
// b1 and c1 become a2, b2 and c2.
type world struct {
	t        *testing.T
	coord    *memcoord.Store
	store    *deployment.Store
	src, dst *memstore.Store
	dir      transform.Direction
	back     transform.Direction // from v2 to v1

	beforeFence func(kind string) // what happens before each fence of flip
	beforeFlip  func()            // what happens behind the fences of flip
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, coord: memcoord.New(),
		src: memstore.NewCluster(memstore.Options{Lag: 3}).Open("old"),
		dst: memstore.NewCluster(memstore.Options{Start: 1 << 20}).Open("new"),
	}
	r := transform.NewRegistry("items")
	keep := func(to string) transform.Func {
		return func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) == 0 {
				return nil, nil
			}
			rec := src.Records[0]
			if n := itemOf(rec).N; n < 0 {
				return nil, errPoison
			}
			rec.Kind = to
			return []record.Record{rec}, nil
		}
	}
	for _, k := range []string{"a", "b"} {
		w.check(r.Add("v1", "v2", transform.Spec{
			Name: k, Revision: "1", Up: keep(k + "2"), Down: keep(k + "1"),
			Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: k + "1"}}}},
			New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: k + "2"}}}},
		}))
	}
	// Keys of kind c1 that begin with "bad" have no group.
	w.check(r.Add("v1", "v2", transform.Spec{
		Name: "c", Revision: "1", Up: keep("c2"), Down: keep("c1"),
		Old: transform.Side{Anchor: func(group string) (string, record.Key) { return "c1", record.Key(group) }, Kinds: []transform.GroupedKind{{
			KindSpec: record.KindSpec{Name: "c1"},
			GroupOf: func(k record.Key) (string, error) {
				if strings.HasPrefix(k.String(), "bad") {
					return "", errors.New("the key is bad")
				}
				return string(k), nil
			},
			Select: func(group string) record.Selector { return record.Selector{Kind: "c1", Key: record.Key(group)} },
		}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "c2"}}}},
	}))
	var err error
	w.dir, err = r.Direction("v1", "v2")
	w.check(err)
	w.back, err = r.Direction("v2", "v1")
	w.check(err)
	w.store = deployment.New(w.coord, name, deployment.Config{})
	d, err := w.store.Create(t.Context(), "v1", ring)
	w.check(err)
	for v, ns := range map[string]record.Namespace{"v1": w.src, "v2": w.dst} {
		made, err := syncer.Provision(t.Context(), ns, d, v, "mem:"+v, r.Kinds(v), func(string) record.FenceClass { return "" })
		w.check(err)
		w.apply(upgradestate.AnnounceNamespace{Namespace: made})
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: w.dir.Hash(), Precopied: true}})
	w.drive()
	return w
}

// drive does what a driver does before a switch: it renames the kinds of the target.
func (w *world) drive() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := range w.store.Watch(ctx) {
			if d.Upgrade != nil && d.Upgrade.Step != upgradestate.StepNone {
				continue
			}
			for _, a := range upgradestate.Actions(d) {
				if a, ok := a.(upgradestate.Execute); ok && a.Pending.Reason == upgradestate.PendingSeal {
					w.execute(ctx, a)
				}
			}
		}
	}()
	w.t.Cleanup(func() { stop(); <-done })
}

// execute does an operation, if it is not done already: a test and its driver may both come to do
// it, and the later one of them finds the kind moved on.
func (w *world) execute(ctx context.Context, a upgradestate.Execute) (d upgradestate.Deployment) {
	err := w.fencer(a.Version).Fence(ctx, record.Fence{
		Class: record.FenceClass(a.Class), Token: record.Token{Kind: a.Place.Kind, Name: a.Place.Name, ID: a.Place.ID}, To: a.Pending.To,
	})
	if err == nil {
		d, err = w.store.Apply(ctx, upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
	}
	if errors.Is(err, record.ErrFenced) {
		if d, err = w.store.Get(ctx); err == nil && slices.Contains(upgradestate.Actions(d), upgradestate.Action(a)) {
			err = fmt.Errorf("%+v is still to be done, and it is refused", a)
		}
	}
	if err != nil && ctx.Err() == nil {
		w.t.Error(err)
	}
	return d
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) apply(ev upgradestate.Event) upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Apply(w.t.Context(), ev)
	w.check(err)
	return d
}

func (w *world) begin() {
	w.t.Helper()
	w.apply(upgradestate.Begin{ID: "u", TargetVersion: "v2"})
}

func (w *world) tokens(version string) record.Tokens {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	toks := record.Tokens{}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		toks[k.Kind] = record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}
	}
	return toks
}

func itemOf(r record.Record) (it item) {
	if err := bson.Unmarshal(r.Doc, &it); err != nil {
		panic(err)
	}
	return it
}

func mutation(kind, key string, n int) record.Mutation {
	doc, err := bson.Marshal(item{key, n})
	if err != nil {
		panic(err)
	}
	return record.Mutation{Kind: kind, Key: record.StringKey(key), Doc: doc}
}

// put writes an item as a client of the source does.
func (w *world) put(kind, key string, n int) {
	w.t.Helper()
	w.check(w.src.Write(w.t.Context(), w.tokens("v1"), []record.Mutation{mutation(kind, key, n)}))
}

// target is what the target holds of an item; -1 if nothing.
func (w *world) target(kind, key string) int {
	w.t.Helper()
	rec, err := w.dst.Get(w.t.Context(), w.tokens("v2")[kind], record.StringKey(key))
	for errors.Is(err, record.ErrFenced) { // the target was renamed in between
		<-time.After(time.Millisecond)
		rec, err = w.dst.Get(w.t.Context(), w.tokens("v2")[kind], record.StringKey(key))
	}
	if errors.Is(err, record.ErrNotFound) {
		return -1
	}
	w.check(err)
	return itemOf(rec).N
}

// keyIn is the i-th key whose group is in a shard.
func keyIn(shard, i int) string {
	for n := 0; ; n++ {
		if key := fmt.Sprintf("item-%d", n); shards.Of(string(record.StringKey(key)), ring) == shard {
			if i--; i < 0 {
				return key
			}
		}
	}
}

// eventually waits, in simulated time, until ok.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	w.t.Fatalf("%s did not come", what)
}

func (w *world) ready() []int {
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	if d.Upgrade == nil {
		return nil
	}
	return d.Upgrade.ReadyShards
}

func (w *world) allReady() bool { return len(w.ready()) == ring }

func (w *world) parked() []syncer.Parked {
	list, err := w.store.Parked(w.t.Context(), syncer.Key(1, w.dir, 0), -1)
	w.check(err)
	return list
}

// fence renames a source kind as it is announced, and does not confirm it.
func (w *world) fence(kind string) (confirm upgradestate.Confirmed) {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	ns, _ := d.Namespace("v1")
	k, _ := ns.Kind(kind)
	f := record.Fence{Class: record.FenceUUID, Token: record.Token{Kind: kind, Name: k.Physical, ID: k.ID}, To: k.Pending.To}
	w.check(w.src.Fence(w.t.Context(), f))
	return upgradestate.Confirmed{Version: "v1", Kind: kind, To: f.To, From: k.Pending.From}
}

// free takes the lock of a shard from its holder.
func (w *world) free(n int) {
	w.t.Helper()
	_, err := w.coord.Commit(w.t.Context(), nil, []coord.Op{{Key: fmt.Sprintf("%s/shards/%05d", w.store.Root(), n), Delete: true}})
	w.check(err)
}

var _ syncer.Ownership = (*shardstest.Owner)(nil)

func (w *world) owner(ns ...int) *shardstest.Owner {
	w.t.Helper()
	return shardstest.New(w.t, w.coord.Client(), w.store.Root(), ns...)
}

// running is an engine that runs.
type running struct {
	engine *syncer.Engine
	cancel context.CancelFunc
	done   chan error
}

// engine starts an engine; change, if not nil, replaces some of its parts.
func (w *world) engine(o *shardstest.Owner, change func(*syncer.Parts)) *running {
	return w.engineWith(o, change, nil)
}

// engineWith also changes how the engine works, where configure is not nil.
func (w *world) engineWith(o *shardstest.Owner, change func(*syncer.Parts), configure func(*syncer.Config)) *running {
	p := syncer.Parts{
		Source: w.src, Target: w.dst, Direction: w.dir, Deployments: w.store, Journal: w.store, Ownership: o,
		Comparer: verify.New(w.src, w.dst, w.dir), Lease: func() coord.LeaseID { return 0 },
		Log: zaptest.NewLogger(w.t, zaptest.Level(zap.ErrorLevel)),
	}
	if change != nil {
		change(&p)
	}
	cfg := syncer.Config{Owner: "c", Epoch: 1, Ring: ring, Workers: 2, Page: 5, Copy: true}
	if configure != nil {
		configure(&cfg)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &running{
		engine: syncer.New(p, cfg),
		cancel: cancel, done: make(chan error, 1),
	}
	go func() { r.done <- r.engine.Run(ctx) }()
	return r
}

// stop ends the engine as a shutdown does.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		t.Errorf("engine: %v", err)
	}
}

// progress of one shard; ok is false while it is not owned.
func (r *running) progress(shard int) (p syncer.Progress, ok bool) {
	for _, p := range r.engine.Progress() {
		if p.Shard == shard {
			return p, true
		}
	}
	return p, false
}

func (r *running) synced() bool {
	ps := r.engine.Progress()
	for _, p := range ps {
		if p.State != "ready" && p.State != "following" {
			return false
		}
	}
	return len(ps) > 0
}
