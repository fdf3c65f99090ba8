package simulation_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/throttle"
)

// counted counts the calls of a coordination store. Each is one request to etcd. The
// renewal of leases is not counted.
type counted struct {
	coord.Store
	calls  atomic.Int64
	leases atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string) (coord.KV, error) {
	c.calls.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counted) List(ctx context.Context, prefix string) ([]coord.KV, int64, error) {
	c.calls.Add(1)
	return c.Store.List(ctx, prefix)
}

func (c *counted) ListPage(ctx context.Context, prefix, after string, limit int) ([]coord.KV, error) {
	c.calls.Add(1)
	return c.Store.ListPage(ctx, prefix, after, limit)
}

func (c *counted) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	c.calls.Add(1)
	return c.Store.Commit(ctx, conditions, ops)
}

func (c *counted) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	c.calls.Add(2) // it lists and watches
	return c.Store.Follow(ctx, prefix)
}

func (c *counted) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	c.calls.Add(1)
	l, err := c.Store.Grant(ctx, ttl)
	if err == nil {
		c.leases.Add(1)
		go func() {
			<-l.Done()
			c.leases.Add(-1)
		}()
	}
	return l, err
}

// TestManyAtRest runs many small deployments in one process and logs what they cost at rest: memory,
// goroutines, and requests to etcd. docs/rollout.md has the figures of 40, which this prints:
//
//	DBCONTROLLER_FLEET=40 go test ./integration/simulation -run TestManyAtRest -v
//
// The databases are in memory, too, so connections to MongoDB are not in the figures.
func TestManyAtRest(t *testing.T) {
	n := 3
	if text := os.Getenv("DBCONTROLLER_FLEET"); text != "" {
		n = must(strconv.Atoi(text))
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := newFleet(t, n)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		store := &counted{Store: f.coord.Client()}
		shared := deployment.New(store, f.names[0], deployment.Config{}).Rollouts()
		done := make(chan error, n)
		for _, name := range f.names {
			set := (&system{shards: 1}).settings()
			set.Deployment = name
			app := controller.New(set, registry(), store, backend{f.dbs[name]}, controller.Options{ID: "a", Rollouts: shared}, zap.NewNop())
			go func() { done <- app.Run(ctx, nil) }()
		}
		f.ready(ctx)
		pass(2 * time.Minute) // until all have compared and follow
		calls := store.calls.Load()
		const rest = 10 * time.Minute
		pass(rest)
		calls = store.calls.Load() - calls
		runtime.GC()
		runtime.ReadMemStats(&after)
		per := float64(calls) / rest.Seconds() / float64(n)
		leases := float64(store.leases.Load()) / float64(n)
		t.Logf("%d deployments at rest, each: %d KiB of heap, %d KiB of stacks, %d goroutines, %.2f requests to etcd a second, and %.1f leases, whose renewal is not counted",
			n, (after.HeapAlloc-before.HeapAlloc)/uint64(n)>>10, (after.StackInuse-before.StackInuse)/uint64(n)>>10, (runtime.NumGoroutine()-goroutines)/n, per, leases)
		// Most of them are the two beats a second. Time is simulated, so the machine plays no part.
		if per > 3 {
			t.Errorf("%.1f requests a second for each deployment", per)
		}
		cancel()
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCopiesTakeTurns: the copies of a process wait for a place, and each deployment shows why. When a
// place is free, all of them follow, one after the other.
func TestCopiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := newFleet(t, 3)
		turns := throttle.NewTurns(1)
		large := throttle.New(throttle.Config{Turns: turns}) // a copy that has the only place
		copied, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			defer large.Rest()
			for {
				if err := large.Wait(ctx, 0); err != nil {
					return
				}
				select {
				case <-copied:
					return
				case <-time.After(time.Second):
				}
			}
		}()
		synctest.Wait()
		done := make(chan error, len(f.names))
		for _, name := range f.names {
			set := (&system{shards: 1}).settings()
			set.Deployment = name
			app := controller.New(set, registry(), f.coord.Client(), backend{f.dbs[name]}, controller.Options{ID: "a", Turns: turns}, zap.NewNop())
			go func() { done <- app.Run(ctx, nil) }()
		}
		f.ready(ctx)
		pass(20 * time.Second)
		for i, name := range f.names {
			ps := must(f.store(name).Progress(ctx))
			if len(ps) != 1 || ps[0].Agreed() || !strings.Contains(ps[0].WaitsFor, "copy.deployments") {
				t.Errorf("%s while a copy has the place: %+v", f.names[i], ps)
			}
		}
		close(copied)
		<-ended
		pass(20 * time.Second)
		for _, name := range f.names {
			if ps := must(f.store(name).Progress(ctx)); len(ps) != 1 || !ps[0].Agreed() {
				t.Errorf("%s after the copy: %+v", name, ps)
			}
		}
		cancel()
		for range f.names {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
