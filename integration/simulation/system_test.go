package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

const (
	name = "services/items/deployments/sim"
	ring = 8
)

// system is a whole deployment in memory: two databases, a coordination store, and as
// many controllers and servers as a test starts.
type system struct {
	t        *testing.T
	log      *zap.Logger
	coord    *memcoord.Store
	db       map[string]database
	registry *transform.Registry
	stack    func(version string, views map[string]*vrunner.View) vrunner.Stack
	admin    *deployment.Store
	maxRate  int           // records that a controller copies a second; 0 is no limit
	loads    atomic.Int64  // groups that were copied, by all controllers
	begun    int           // upgrades
	lagBound time.Duration // of controllers; 0 is theirs

	forgets bool // histories end at any moment, and what was copied is compared again

	// Of controllers that start from now on:
	carry        collections.Carries
	manual       bool          // they copy when an upgrade begins, and not before
	hooks        []hooks.Hook  // that they tell of what happens
	shards       int           // 0 is ring
	shardMetrics bool          // each shard has metrics of its own
	oneWay       bool          // v1 is not kept in sync once it was left
	holdTimeout  time.Duration // of servers; 0 is the driver's

	forward vrunner.Forward // of servers that start from now on
}

// database is one version's, as controllers and as servers reach it.
type database interface {
	controller.Space
	record.Client
}

// founding makes a system whose deployment is there.
type founding func(ctx context.Context, t *testing.T) *system

func newSystem(ctx context.Context, t *testing.T) *system {
	t.Helper()
	return newSystemOf(ctx, t, memory(), registry(), stack)
}

// memory is two databases in memory, whose clocks have nothing to do with each other.
func memory() map[string]database {
	return map[string]database{
		"v1": memstore.NewCluster(memstore.Options{Lag: 3}).Open("old"),
		"v2": memstore.NewCluster(memstore.Options{Start: 1 << 20}).Open("new"),
	}
}

// newSystemOf is newSystem for another service, and any databases; what is carried of the
// collections of fixed-name kinds may be added.
func newSystemOf(ctx context.Context, t *testing.T, db map[string]database, r *transform.Registry, stack func(string, map[string]*vrunner.View) vrunner.Stack, carry ...collections.Carries) *system {
	t.Helper()
	s := unfounded(t, db, r, stack, carry...)
	s.found(ctx)
	return s
}

// unfounded is a system whose deployment is not there yet.
func unfounded(t *testing.T, db map[string]database, r *transform.Registry, stack func(string, map[string]*vrunner.View) vrunner.Stack, carry ...collections.Carries) *system {
	t.Helper()
	s := &system{
		t: t, log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), coord: memcoord.New(),
		db: db, registry: r, stack: stack,
	}
	s.admin = deployment.New(s.coord, name, deployment.Config{})
	for _, c := range carry {
		s.carry = c
	}
	return s
}

// quiet is for tests whose faults fill the log.
func (s *system) quiet() { s.log = zap.NewNop() }

func (s *system) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) direction() transform.Direction { return must(s.registry.Direction("v1", "v2")) }

// server starts a server and returns its handler.
func (s *system) server(ctx context.Context, id string, wrap func(version string, c record.Client) record.Client) (*vrunner.Runner, *process) {
	ctx, stop := context.WithCancel(ctx)
	p := &process{stop: stop, done: make(chan struct{}), conn: s.coord.Client()}
	databases := map[string]vrunner.Database{}
	for v, db := range s.db {
		var client record.Client = db
		if wrap != nil {
			client = wrap(v, client)
		}
		databases[v] = vrunner.Database{Client: client, Watcher: db}
	}
	store := deployment.New(p.conn, name, deployment.Config{})
	presence := deployment.NewPresence(store)
	runner := vrunner.New(struct {
		*deployment.Store
		*deployment.Presence
	}{store, presence}, databases, s.stack, vrunner.Config{ID: id, Forward: s.forward}, zaplog.New(s.log))
	go func() {
		defer close(p.done)
		defer stop()
		g, group := errgroup.WithContext(ctx)
		g.Go(func() error { return runner.Run(group) })
		g.Go(func() error { return presence.Run(group) })
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			s.t.Errorf("server %s: %v", id, err)
		}
	}()
	s.awaitReady(ctx, runner)
	return runner, p
}

// awaitReady blocks until a server can serve.
func (s *system) awaitReady(ctx context.Context, r *vrunner.Runner) {
	s.t.Helper()
	for r.Ready() != nil {
		select {
		case <-ctx.Done():
			s.t.Fatal(ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// now is a version that shows everything acknowledged so far: reads of v1 lag.
func (s *system) now(ctx context.Context, version string) record.Version {
	s.t.Helper()
	pos, err := s.db[version].Position(ctx)
	s.check(err)
	return pos.At
}

func (s *system) view(ctx context.Context, version string, toks record.Tokens) transform.View {
	return transform.View{Tokens: toks, NotBefore: s.now(ctx, version)}
}

// begin starts the upgrade to v2: "upgrade-1", and the next ones when it is called again.
func (s *system) begin(ctx context.Context) {
	s.t.Helper()
	s.begun++
	_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: fmt.Sprintf("upgrade-%d", s.begun), TargetVersion: "v2"})
	s.check(err)
}

// countLoads counts what is copied.
type countLoads struct {
	record.Namespace
	n *atomic.Int64
}

func (c countLoads) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	c.n.Add(int64(len(b.Groups)))
	return c.Namespace.Load(ctx, b)
}

// await blocks until the record satisfies ok.
func (s *system) await(ctx context.Context, what string, ok func(upgradestate.Deployment) bool) upgradestate.Deployment {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var last upgradestate.Deployment
	for d := range s.admin.Watch(ctx) {
		if last = d; ok(d) {
			return d
		}
	}
	progress, _ := s.admin.Progress(context.WithoutCancel(ctx))
	s.t.Fatalf("%s did not come; record: %+v upgrade %+v\nprogress: %s", what, last, last.Upgrade, fmt.Sprintf("%+v", progress))
	return last
}

func active(version string) func(upgradestate.Deployment) bool {
	return func(d upgradestate.Deployment) bool { return d.CurrentVersion == version && d.Upgrade == nil }
}
