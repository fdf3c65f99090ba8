package switchover_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ring = 4

// world is a deployment in memory whose upgrade has begun and is ready to switch.
type world struct {
	log     *zap.Logger // of the driver; nil: none
	t       *testing.T
	coord   *memcoord.Store
	admin   *deployment.Store
	db      map[string]*memstore.Store
	fencers map[string]record.Fencer

	parked atomic.Pointer[func(upgradestate.Deployment) int]

	mu     sync.Mutex
	events []upgradestate.Event // that drivers applied
}

// kindsOf declares kinds of one version.
type kindsOf struct {
	v1, v2 []record.KindSpec
	fence  record.FenceClass // for fixed-name kinds
	inject map[string]faultstore.Injector
}

var simple = kindsOf{v1: []record.KindSpec{{Name: "old"}}, v2: []record.KindSpec{{Name: "new"}}}

// inBubble runs a test in simulated time.
func inBubble(t *testing.T, kinds kindsOf, test func(ctx context.Context, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		test(ctx, newWorld(ctx, t, kinds))
	})
}

func newWorld(ctx context.Context, t *testing.T, kinds kindsOf) *world {
	t.Helper()
	opts := memstore.Options{}
	if kinds.fence == record.FenceValidator {
		opts.FixedFence = kinds.fence
	}
	w := &world{
		t: t, coord: memcoord.New(), fencers: map[string]record.Fencer{},
		db: map[string]*memstore.Store{"v1": memstore.NewCluster(opts).Open("old"), "v2": memstore.NewCluster(opts).Open("new")},
	}
	for v, ns := range w.db {
		inj := kinds.inject[v]
		if inj == nil {
			inj = faultstore.Never()
		}
		w.fencers[v] = faultstore.Wrap(ns, inj)
	}
	for _, k := range kinds.v1 {
		if k.Fixed { // the application made it long ago
			w.check(w.db["v1"].Foreign().Put(ctx, k.Name, doc("first")))
		}
	}
	w.admin = deployment.New(w.coord, "services/s/deployments/d", deployment.Config{})
	d, err := w.admin.Create(ctx, "v1", ring)
	w.check(err)
	for v, specs := range map[string][]record.KindSpec{"v1": kinds.v1, "v2": kinds.v2} {
		ns, err := syncer.Provision(ctx, w.db[v], d, v, "mem:"+v, specs, func(string) record.FenceClass { return kinds.fence })
		w.check(err)
		_, err = w.admin.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
		w.check(err)
	}
	_, err = w.admin.Apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h"}})
	w.check(err)
	_, err = w.admin.Apply(ctx, upgradestate.Begin{ID: "u1", TargetVersion: "v2"})
	w.check(err)
	return w
}

func doc(name string) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: name}})
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// spied is the Deployment as a driver sees it, with what it does noted.
type spied struct {
	deployment.ForDriver
	w *world
}

var _ switchover.Deployments = spied{}

func (s spied) Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error) {
	s.w.mu.Lock()
	s.w.events = append(s.w.events, ev)
	s.w.mu.Unlock()
	return s.ForDriver.Apply(ctx, ev, conditions...)
}

func (s spied) Parked(ctx context.Context) (int, error) {
	f := s.w.parked.Load()
	if f == nil {
		return s.ForDriver.Parked(ctx)
	}
	d, err := s.Get(ctx)
	return (*f)(d), err
}

// park decides from now on how many groups are parked.
func (w *world) park(f func(upgradestate.Deployment) int) { w.parked.Store(&f) }

// abortReason is that of the first abort that a driver applied.
func (w *world) abortReason() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if a, ok := e.(upgradestate.Abort); ok {
			return a.Reason
		}
	}
	return ""
}

func (w *world) logger() *zap.Logger { return cmp.Or(w.log, zap.NewNop()) }

// drive starts a driver.
func (w *world) drive(ctx context.Context, cfg switchover.Config) {
	go func() {
		_ = switchover.New(spied{deployment.ForDriver{Store: w.admin}, w}, w.fencers, cfg, w.logger()).Run(ctx) // ends with ctx
	}()
}

// report has the shards report whenever they are asked, after a while.
func (w *world) report(ctx context.Context, after time.Duration) {
	go func() {
		for d := range w.admin.Watch(ctx) {
			for _, a := range upgradestate.Actions(d) {
				ask, ok := a.(upgradestate.AwaitReports)
				if !ok {
					continue
				}
				select {
				case <-time.After(after):
				case <-ctx.Done():
					return
				}
				_, err := w.admin.Apply(ctx, upgradestate.Report{ID: ask.ID, State: ask.State, Attempt: ask.Attempt, Fences: ask.Fences, Shards: ask.Shards})
				if err != nil && ctx.Err() == nil {
					w.t.Logf("report: %v", err) // outdated by an abort
				}
			}
		}
	}()
}

// await blocks until the record satisfies ok.
func (w *world) await(ctx context.Context, what string, ok func(upgradestate.Deployment) bool) upgradestate.Deployment {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	last := ""
	for d := range w.admin.Watch(ctx) {
		if ok(d) {
			return d
		}
		last = fmt.Sprintf("%+v, upgrade %+v", d, d.Upgrade)
	}
	w.t.Fatalf("%s did not come; record %s", what, last)
	return upgradestate.Deployment{}
}

// open: a version is written again and nothing runs.
func open(version string) func(upgradestate.Deployment) bool {
	return func(d upgradestate.Deployment) bool {
		v, places := upgradestate.WritePlaces(d)
		return v == version && len(places) > 0 && d.Upgrade == nil
	}
}

func switching(d upgradestate.Deployment) bool {
	return d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
}

func (w *world) get(ctx context.Context) upgradestate.Deployment {
	w.t.Helper()
	d, err := w.admin.Get(ctx)
	w.check(err)
	return d
}

// quiet lets simulated time pass.
func quiet(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
