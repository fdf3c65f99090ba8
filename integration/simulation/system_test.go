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

	"dbcontroller/coord/memcoord"
	"dbcontroller/deployment"
	"dbcontroller/identity"
	"dbcontroller/pace"
	"dbcontroller/record"
	"dbcontroller/record/memstore"
	"dbcontroller/shards"
	"dbcontroller/switchover"
	"dbcontroller/syncer"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
	"dbcontroller/vrunner"
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
	back     bool          // controllers that start from now on sync the way back as well
}

// database is one version's, as controllers and as servers reach it.
type database interface {
	record.Namespace
	record.Client
}

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

// newSystemOf is newSystem for another service, and any databases.
func newSystemOf(ctx context.Context, t *testing.T, db map[string]database, r *transform.Registry, stack func(string, map[string]*vrunner.View) vrunner.Stack) *system {
	t.Helper()
	s := &system{
		t: t, log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), coord: memcoord.New(),
		db: db, registry: r, stack: stack,
	}
	s.admin = deployment.New(s.coord, name, deployment.Config{})
	d, err := s.admin.Create(ctx, "v1", ring)
	s.check(err)
	none := func(string) record.FenceClass { return "" }
	kinds := map[string][]record.KindSpec{"v1": s.direction().SourceKinds(), "v2": s.direction().TargetKinds()}
	for _, v := range []string{"v1", "v2"} {
		ns, err := syncer.Provision(ctx, s.db[v], d, v, "mem:"+v, kinds[v], none)
		s.check(err)
		d, err = s.admin.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
		s.check(err)
	}
	_, err = s.admin.Apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: s.direction().Hash(), Ahead: true}})
	s.check(err)
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

// process is a controller or server that a test can stop.
type process struct {
	stop context.CancelFunc
	done chan struct{}
	conn *memcoord.Store // its connection to the coordination store
	// Once done is closed, why it ended by itself: others transform otherwise, or a database
	// is not the one that the deployment means.
	foreign error
	astray  *identity.MismatchError
}

// kill ends the process as SIGKILL does: what it had not stored is gone, and its leases
// run out by themselves.
func (p *process) kill() {
	p.conn.Cut()
	p.stop()
	<-p.done
}

// controller starts a controller. wrap, if not nil, stands between it and a version's
// database.
func (s *system) controller(ctx context.Context, id string, wrap func(version string, ns record.Namespace) record.Namespace) *process {
	return s.controllerProcess(ctx, id, func(_ *process, version string, ns record.Namespace) record.Namespace {
		if wrap == nil {
			return ns
		}
		return wrap(version, ns)
	})
}

// controllerProcess is controller for a wrap that does something to the process.
func (s *system) controllerProcess(ctx context.Context, id string, wrap func(p *process, version string, ns record.Namespace) record.Namespace) *process {
	ctx, stop := context.WithCancel(ctx)
	p := &process{stop: stop, done: make(chan struct{}), conn: s.coord.Client()}
	db := map[string]record.Namespace{}
	for v, own := range s.db {
		db[v] = wrap(p, v, countLoads{own, &s.loads})
	}
	log, registry := s.log.With(zap.String("controller", id)), s.registry
	go func() {
		defer close(p.done)
		defer stop()
		store := deployment.New(p.conn, name, deployment.Config{Log: log})
		pool := shards.New(p.conn, shards.Config{Prefix: store.Root(), ID: id, Ring: ring, Log: log})
		stopped := ctx
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return pool.Run(ctx) })
		sync := func(ctx context.Context, d upgradestate.Deployment) error {
			from, to := d.CurrentVersion, other(d.CurrentVersion)
			dir := must(registry.Direction(from, to))
			last := d.LastSwitch
			left := last != nil && last.Snapshot && last.From == to // stays as it is until somebody begins
			return syncer.New(syncer.Parts{
				Source: db[from], Target: db[to], Direction: dir, Deployments: store, Journal: store,
				Ownership: pool, Comparer: verify.New(db[from], db[to], dir), Lease: pool.Lease, Log: log,
				Pacer: pace.New(pace.Config{MaxRate: s.maxRate}),
			}, syncer.Config{
				Owner: id, Epoch: d.Epoch, Ring: ring, Workers: 2, Page: 7, LagBound: s.lagBound,
				Copy: !left, Snapshot: d.Upgrade != nil && d.Upgrade.Snapshot,
			}).Run(ctx)
		}
		back := s.back
		g.Go(func() error {
			if back {
				return followAll(ctx, store, sync)
			}
			return sync(ctx, upgradestate.Deployment{CurrentVersion: "v1", Epoch: 1})
		})
		g.Go(func() error {
			return shards.Lead(ctx, p.conn, store.DriverKey(), id, log, func(ctx context.Context) error {
				return switchover.New(deployment.ForDriver{Store: store}, map[string]record.Fencer{"v1": db["v1"], "v2": db["v2"]},
					switchover.Config{Position: func(ctx context.Context, version string) (string, error) { return position(ctx, db[version]) }}, log).Run(ctx)
			})
		})
		err := g.Wait()
		switch {
		case errors.Is(err, syncer.ErrOtherTransform):
			p.foreign = err
		case errors.As(err, &p.astray):
		case err != nil && !errors.Is(err, context.Canceled) && stopped.Err() == nil:
			s.t.Errorf("controller %s: %v", id, err)
		}
	}()
	return p
}

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
	}{store, presence}, databases, s.stack, vrunner.Config{ID: id}, s.log)
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
