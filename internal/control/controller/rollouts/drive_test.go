package rollouts

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/rollout"
)

// behind is a store whose watches deliver each change late. It counts the reads of rollouts.
type behind struct {
	*memcoord.Store
	late time.Duration
	gets atomic.Int64
	many func() // called after too many reads
}

func (s *behind) Get(ctx context.Context, key string) (coord.KV, error) {
	if strings.Contains(key, "/rollouts/") && s.gets.Add(1) == 1000 {
		s.many()
	}
	return s.Store.Get(ctx, key)
}

func (s *behind) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	kvs, rev, w, err := s.Store.Follow(ctx, prefix)
	return kvs, rev, lateWatch{w, s.late}, err
}

type lateWatch struct {
	coord.Watch
	late time.Duration
}

func (w lateWatch) Next(ctx context.Context) ([]coord.Event, error) {
	events, err := w.Watch.Next(ctx)
	if err == nil {
		time.Sleep(w.late)
	}
	return events, err
}

// driving returns a runner, and stores a rollout for each name. Their deployments have no record, so
// the rollouts wait.
func driving(t *testing.T, store coord.Store, names ...string) *Runner {
	t.Helper()
	s := deployment.New(store, deploymenttest.Name, deployment.Config{})
	r := New(Config{ID: "c", Coord: store, Store: s, Rollouts: s.Rollouts(), Log: zap.NewNop()})
	for _, name := range names {
		policy := rollout.Policy{GateLimitMillis: 1000, OnFailure: rollout.StopOnly}
		ro := rollout.New(name, name, "v2", [][]string{{"services/s/deployments/" + name}}, policy, "a test", time.Now())
		if _, err := r.Rollouts.Store(t.Context(), ro, 0); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestDriverWithOldList: a driver that has read the end of a rollout does not begin again while the
// watch still shows the rollout as active.
func TestDriverWithOldList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		store := &behind{Store: memcoord.New(), late: 10 * time.Second, many: cancel}
		r := driving(t, store, "r")
		var result error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			result = r.drive(ctx)
		}()
		time.Sleep(time.Minute)
		change(t, r, rollout.Stop(""))
		before := store.gets.Load()
		<-ended
		if n := store.gets.Load() - before; ctx.Err() != nil || result != nil || n > 3 {
			t.Errorf("after the end the driver has read the rollout %d times: %v, %v", n, ctx.Err(), result)
		}
		// A later revision needs a driver again.
		change(t, r, rollout.Resume())
		again := make(chan struct{})
		go func() {
			defer close(again)
			result = r.drive(ctx)
		}()
		time.Sleep(time.Minute)
		change(t, r, rollout.Stop(""))
		<-again
	})
}

// TestDriversLeaveTheirWatches: pausing and resuming a rollout many times leaves no goroutine behind.
// It counts those of the process, so it is not parallel.
func TestDriversLeaveTheirWatches(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := driving(t, memcoord.New(), "r", "other")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := r.drive(ctx); err != nil {
				t.Error(err)
			}
		}()
		round := func() int {
			change(t, r, rollout.Pause(""))
			synctest.Wait()
			change(t, r, rollout.Resume())
			synctest.Wait()
			return runtime.NumGoroutine()
		}
		first := round()
		var last int
		for range 20 {
			last = round()
		}
		if last > first {
			t.Errorf("%d goroutines after the first round, %d after 20 more", first, last)
		}
		cancel()
		<-ended
	})
}
