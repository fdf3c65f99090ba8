package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/integration/memetcd"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/upgradestate"
)

// Versions of a service may be in databases of two engines: one as MongoDB is, the other the
// record store on etcd itself, over an etcd in memory. Their versions are of two scales, groups
// and transactions have other bounds, and the history of etcd ends at any moment.

// crossing is which version is in etcd.
type crossing string

var crossings = []crossing{"v2", "v1"}

func (c crossing) String() string { return c.other() + " as in MongoDB, " + string(c) + " in etcd" }

func (c crossing) other() string { return other(string(c)) }

// operations is how many an etcd takes in a transaction: an item with few parts has a place in
// one, and two items have not.
const operations = 8

// inEtcd is a database in an etcd in memory, which has no members to ask what they are.
type inEtcd struct{ *etcdstore.Store }

func (inEtcd) Check(ctx context.Context) error { return ctx.Err() }

func (crossing) server() *memetcd.Server {
	return memetcd.New(memetcd.Options{Operations: operations, Bytes: 16 << 10})
}

// on makes a system over an etcd and a cluster as MongoDB is.
func (c crossing) on(ctx context.Context, t *testing.T, server *memetcd.Server, cluster *memstore.Cluster) *system {
	t.Helper()
	store, err := etcdstore.New(&etcdconn.Conn{Client: server.Client(ctx)}, etcdstore.Config{
		Prefix: "/items/", Operations: operations, Bytes: 15 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	return newSystemOf(ctx, t, map[string]database{string(c): inEtcd{store}, c.other(): cluster.Open("items")}, registry(), stack)
}

// found is a founding. If it forgets, a compaction comes every ten seconds or so, in the copy, in
// the switch and the rollback.
func (c crossing) found(seed uint64, forgets bool) founding {
	return func(ctx context.Context, t *testing.T) *system {
		t.Helper()
		server := c.server()
		s := c.on(ctx, t, server, memstore.NewCluster(memstore.Options{Start: 1 << 40}))
		if s.forgets = forgets; forgets {
			rng := rand.New(rand.NewPCG(seed, 13))
			go func() {
				for ctx.Err() == nil {
					select {
					case <-ctx.Done():
					case <-time.After(time.Duration(rng.IntN(20_000)) * time.Millisecond):
						server.Compact()
					}
				}
			}()
		}
		return s
	}
}

// eachCrossing runs the nth case for both directions, each in a world of its own.
func eachCrossing(t *testing.T, nth int, name string, test func(t *testing.T, c crossing)) {
	t.Helper()
	for _, c := range turns(nth, crossings...) {
		t.Run(fmt.Sprintf("%s/%s", c, name), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

// TestCrossEngineKill is TestKillController from one engine to the other.
func TestCrossEngineKill(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases(moments) {
		seed := uint64(i)
		eachCrossing(t, i/2, m.String(), func(t *testing.T, c crossing) {
			killOne(t, c.found(seed, i%2 == 0), seed, m, 1+i%2)
		})
	}
}

// TestCrossEngineBack is TestKillOnTheReverseSync from one engine to the other: forward, back,
// and so on.
func TestCrossEngineBack(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases(backMoments) {
		seed := uint64(i)
		c := crossings[i%2] // each run goes both ways, several times
		t.Run(fmt.Sprintf("%s/%s", c, m), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { killBack(t, c.found(seed, i%4 > 1), seed, m, i%3 == 0) })
		})
	}
}

// TestCrossEngineAbort is TestAbortAtEveryStep from one engine to the other.
func TestCrossEngineAbort(t *testing.T) {
	for i, m := range cases(abortMoments) {
		seed := uint64(i)
		eachCrossing(t, i, m.String(), func(t *testing.T, c crossing) { abortAt(t, c.found(seed, false), seed, m) })
	}
}

// TestCrossEngineFaults is TestBadWeather and TestControllerSleepsOverTheSwitch from one engine
// to the other.
func TestCrossEngineFaults(t *testing.T) {
	for seed := range seeds(3) {
		eachCrossing(t, int(seed), fmt.Sprint("weather ", seed), func(t *testing.T, c crossing) { badWeather(t, c.found(seed, true), seed) })
	}
	for seed := range seeds(4) {
		eachCrossing(t, int(seed)+1, fmt.Sprint("sleep ", seed), func(t *testing.T, c crossing) { sleepyController(t, c.found(seed, seed > 1), seed) })
	}
}

// TestCrossEngineTooLarge: an item has more records in v2 than a transaction of etcd takes. It is
// parked by its name and holds the switch until it is smaller; nothing of it is written.
func TestCrossEngineTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := crossing("v2").found(1, false)(ctx, t)
		a, pa := s.server(ctx, "server-a", nil)
		tr := newTraffic(t, a)
		stop := drive(ctx, tr, 1, 2, 10, 20*time.Millisecond)
		tr.put(a, oldItem{"large", 1, operations})
		c := s.controller(ctx, "controller-1", nil)
		s.begin(ctx)
		pass(20 * time.Second)
		d, err := s.admin.Get(ctx)
		s.check(err)
		if d.CurrentVersion != "v1" || d.Upgrade == nil || d.Upgrade.State != upgradestate.InitialSyncing {
			t.Errorf("version %s with upgrade %+v, want one that waits", d.CurrentVersion, d.Upgrade)
		}
		parked, err := s.admin.ParkedNow(ctx)
		s.check(err)
		if len(parked) != 1 {
			t.Errorf("parked: %+v", parked)
		}
		tr.put(a, oldItem{"large", 2, 3})
		s.await(ctx, "the flip", active("v2"))
		pass(time.Second)
		stop()
		tr.settle(ctx, s)
		cancel()
		c.kill()
		pa.kill()
	})
}
