package simulation_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/store/mongostore"
)

// TestMain leaves goroutines to the tests over MongoDB, which check for them themselves.
func TestMain(m *testing.M) {
	code := mongotest.Run(m)
	localetcd.Remove()
	os.Exit(code)
}

// real is a database of MongoDB.
type real struct {
	*mongostore.Namespace
	*mongostore.Client
}

// onMongoDB is two databases of a real server.
func onMongoDB(ctx context.Context, t *testing.T) map[string]database {
	t.Helper()
	mongotest.Server(t) // its process is everybody's
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	db := map[string]database{}
	for _, v := range []string{"v1", "v2"} {
		uri, name := mongotest.Database(t)
		ns, err := mongostore.Open(ctx, mongostore.Config{URI: uri, Database: name, AppName: "simulation"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ns.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
		db[v] = real{ns, ns.Client()}
	}
	return db
}

// TestContentOnMongoDB is TestContentUnderTraffic on a real server, where time is real
// too: a merge, a fan-out, a re-key and an N to M, while writers change all parts of them.
// For a while several records claim the same part.
func TestContentOnMongoDB(t *testing.T) {
	raced.Leave(t) // TestWholeOrdersOnMongoDB has the same goroutines
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := newSystemOf(ctx, t, onMongoDB(ctx, t), contentRegistry(), contentStack)
	s.quiet()
	s.oneWay = true // its transformers have no rollback
	// Time is real, and the machine may have other tests to run: in sync is what is applied
	// within seconds.
	s.lagBound = 3 * time.Second
	a, pa := s.server(ctx, "server-a", nil)
	c := newCrowd(t, a)
	// Some thousand changes before the copy; then slower, so that it is in sync for a moment.
	c.collide = true
	before := c.drive(ctx, 1, 6, 60, 0)
	pass(2 * time.Second)
	before()
	filled := c.acked
	stop := c.drive(ctx, 2, 4, 60, 20*time.Millisecond)
	var running []*process
	for i := range 2 {
		running = append(running, s.controller(ctx, fmt.Sprintf("controller-%d", i), nil))
	}
	c.hold(true)
	s.begin(ctx)
	pass(3 * time.Second)
	stop()
	c.tidy(3)
	stop = c.drive(ctx, 4, 2, 60, 20*time.Millisecond)
	c.hold(false)
	s.await(ctx, "the flip", active("v2"))
	pass(time.Second)
	stop()
	if !c.over || c.acked-filled < 50 {
		t.Errorf("%d changes were acknowledged during the upgrade, v2 was met: %t", c.acked-filled, c.over)
	}
	t.Logf("%d changes before, %d during the upgrade, %d records", filled, c.acked-filled, len(c.things))
	c.settle(context.WithoutCancel(ctx), s)
	cancel()
	for _, p := range append(running, pa) {
		p.kill()
	}
}

// TestWholeOrdersOnMongoDB is TestWholeOrders on a real server.
func TestWholeOrdersOnMongoDB(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := newSystemOf(ctx, t, onMongoDB(ctx, t), ordersRegistry(), ordersStack)
	s.quiet()
	s.lagBound = 3 * time.Second
	s.wholeOrders(ctx)
}
