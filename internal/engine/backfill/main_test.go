package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/shardstest"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

const ring = 4

// item is a record. Its region is what the task fills in.
type item struct {
	ID     string `bson:"_id"`
	N      int    `bson:"n"`
	Region string `bson:"region,omitempty"`
}

func (it item) doc() bson.Raw {
	b, err := bson.Marshal(it)
	if err != nil {
		panic(err)
	}
	return b
}

func itemOf(doc bson.Raw) (it item) {
	if err := bson.Unmarshal(doc, &it); err != nil {
		panic(err)
	}
	return it
}

// fill gives each item its region.
func fill(r record.Record) (bson.Raw, error) {
	it := itemOf(r.Doc)
	if it.Region != "" {
		return nil, nil
	}
	it.Region = "us"
	return it.doc(), nil
}

func taskOf(f transform.TaskFunc) transform.Task {
	return transform.Task{Name: "fill-region", Version: "v1", Kind: "items", Revision: "1", Func: f}
}

// world is a deployment with one kind of one version in memory.
type world struct {
	t     testing.TB
	coord *memcoord.Store
	store *deployment.Store
	ns    *memstore.Store
	fixed bool
}

func newWorld(t *testing.T, fixed bool, unique ...bson.Raw) *world {
	t.Helper()
	w := &world{
		t: t, coord: memcoord.New(), fixed: fixed,
		ns: memstore.NewCluster(memstore.Options{Lag: 3}).Open("v1"),
	}
	w.announce(w.ns, record.Shape{Indexes: unique})
	return w
}

// announce makes the deployment and the kind of it.
func (w *world) announce(ns record.Namespace, shape record.Shape) record.Token {
	w.t.Helper()
	w.store = deployment.New(w.coord, "services/items/deployments/unit", deployment.Config{By: "test"})
	_, err := w.store.Create(w.t.Context(), "v1", ring)
	w.check(err)
	name := "items"
	if !w.fixed {
		name = record.PhysicalName("items", 0)
	}
	tok, err := ns.Provision(w.t.Context(), record.KindSpec{Name: "items", Fixed: w.fixed, Shape: shape}, name)
	w.check(err)
	class, _, err := ns.Prepare(w.t.Context(), tok, "")
	w.check(err)
	w.apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v1", Location: "test:v1",
		Kinds: []upgradestate.Kind{{Kind: "items", Fixed: w.fixed, Physical: tok.Name, ID: tok.ID, Fence: string(class)}},
	}})
	return tok
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

func (w *world) record() upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	return d
}

func (w *world) token() record.Token {
	k := w.record().Namespaces[0].Kinds[0]
	return record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
}

func key(i int) string { return fmt.Sprintf("item-%03d", i) }

// put writes items as a client or application does.
func (w *world) put(items ...item) {
	w.t.Helper()
	for _, it := range items {
		if w.fixed {
			w.check(w.ns.Foreign().Put(w.t.Context(), "items", it.doc()))
			continue
		}
		tok := w.token()
		w.check(w.ns.Write(w.t.Context(), record.Tokens{"items": tok},
			[]record.Mutation{{Kind: "items", Key: record.StringKey(it.ID), Doc: it.doc()}}))
	}
}

// seed puts n items.
func (w *world) seed(n int) {
	w.t.Helper()
	for i := range n {
		w.put(item{ID: key(i), N: i})
	}
}

// now is a version that shows everything acknowledged so far.
func (w *world) now() record.Version {
	w.t.Helper()
	pos, err := w.ns.Position(w.t.Context())
	w.check(err)
	return pos.At
}

// items are all that there are, by id.
func (w *world) items() map[string]item {
	w.t.Helper()
	out := map[string]item{}
	page, err := w.ns.Scan(w.t.Context(), record.ScanRequest{Token: w.token(), Limit: 100_000, NotBefore: w.now()})
	w.check(err)
	for _, r := range page.Records {
		it := itemOf(r.Doc)
		out[it.ID] = it
	}
	return out
}

// begin begins a run of the task.
func (w *world) begin(id string, task transform.Task) {
	w.t.Helper()
	w.apply(upgradestate.BeginUpdate{Update: upgradestate.Update{
		ID: id, Name: task.Name, Version: task.Version, Kind: task.Kind, Hash: task.Hash(),
	}})
}

// outcome waits for the end of a run, in simulated time.
func (w *world) outcome(id string) string {
	w.t.Helper()
	out := ""
	w.eventually("the end of "+id, func() bool {
		for _, e := range w.record().History {
			if e.What == "update" && e.ID == id {
				out = e.Outcome
			}
		}
		return out != ""
	})
	return out
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	w.t.Fatalf("%s did not come: %+v", what, w.record().Update)
}

var _ backfill.Ownership = (*shardstest.Owner)(nil)

func (w *world) owner(ns ...int) *shardstest.Owner {
	w.t.Helper()
	return shardstest.New(w.t, w.coord, w.store.Root(), ns...)
}

// running is an engine that runs.
type running struct {
	engine *backfill.Engine
	cancel context.CancelFunc
	done   chan error
}

// engine starts an engine that has a task; change, if not nil, replaces some of its parts.
func (w *world) engine(o *shardstest.Owner, task transform.Task, change func(*backfill.Parts)) *running {
	w.t.Helper()
	tasks := transform.NewRegistry("items")
	w.check(tasks.AddTasks(task))
	p := backfill.Parts{
		Tasks: tasks, Deployments: w.store, Journal: w.store, Ownership: o,
		Namespace: func(version string) backfill.Namespace {
			if version != "v1" {
				return nil
			}
			return w.ns
		},
		Lease: func() coord.LeaseID { return 0 },
		Log:   zaptest.NewLogger(w.t, zaptest.Level(zap.ErrorLevel)),
	}
	if change != nil {
		change(&p)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &running{
		engine: backfill.New(p, backfill.Config{Owner: "c", Workers: 2, Page: 5, Every: 10 * time.Millisecond}),
		cancel: cancel, done: make(chan error, 1),
	}
	go func() { r.done <- r.engine.Run(ctx) }()
	return r
}

// over is a database with something before it.
func over(ns backfill.Namespace) func(*backfill.Parts) {
	return func(p *backfill.Parts) { p.Namespace = func(string) backfill.Namespace { return ns } }
}

func (r *running) stop(t testing.TB) {
	t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		t.Errorf("engine: %v", err)
	}
}

// wantFilled checks that all of n items are there, filled, and otherwise as they were.
func (w *world) wantFilled(n int) {
	w.t.Helper()
	have := w.items()
	for i := range n {
		if want := (item{ID: key(i), N: i, Region: "us"}); have[key(i)] != want {
			w.t.Errorf("%+v, want %+v", have[key(i)], want)
		}
	}
	if len(have) != n {
		w.t.Errorf("there are %d items, want %d", len(have), n)
	}
}

func wantOutcome(t *testing.T, got, want string) {
	t.Helper()
	if !strings.HasPrefix(got, want) {
		t.Errorf("the update ended as %q, want %q", got, want)
	}
}

var errPoison = errors.New("n is negative")
