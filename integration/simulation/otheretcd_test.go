package simulation_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
)

// address is a coordination store behind an address, at which another one may answer.
type address struct {
	now atomic.Pointer[memcoord.Store]
}

func (a *address) Get(ctx context.Context, key string) (coord.KV, error) {
	return a.now.Load().Get(ctx, key)
}

func (a *address) List(ctx context.Context, prefix string) ([]coord.KV, int64, error) {
	return a.now.Load().List(ctx, prefix)
}

func (a *address) ListPage(ctx context.Context, prefix, after string, limit int) ([]coord.KV, error) {
	return a.now.Load().ListPage(ctx, prefix, after, limit)
}

func (a *address) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	return a.now.Load().Commit(ctx, conditions, ops)
}

func (a *address) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	return a.now.Load().Follow(ctx, prefix)
}

func (a *address) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	return a.now.Load().Grant(ctx, ttl)
}

// kept is everything that a coordination store has without a lease, in another one.
func kept(ctx context.Context, t *testing.T, from *memcoord.Store) *memcoord.Store {
	t.Helper()
	to := memcoord.New()
	for _, kv := range must2(from.List(ctx, "")) {
		if kv.Lease == 0 {
			must(to.Commit(ctx, nil, []coord.Op{{Key: kv.Key, Value: kv.Value}}))
		}
	}
	return to
}

func must2[T, U any](v T, _ U, err error) T { return must(v, err) }

// runs starts a controller over a coordination store and returns what it ends with.
func (s *system) runs(ctx context.Context, id string, store coord.Store) <-chan error {
	return s.runsWith(ctx, store, controller.Options{ID: id})
}

func (s *system) runsWith(ctx context.Context, store coord.Store, opts controller.Options) <-chan error {
	ended := make(chan error, 1)
	app := controller.New(s.settings(), s.registry, store, backend{s.db}, opts, s.log)
	go func() { ended <- app.Run(ctx, nil) }()
	return ended
}

// meets waits for another process before it makes a collection.
type meets struct {
	record.Namespace
	wait func()
}

func (m meets) Provision(ctx context.Context, spec record.KindSpec, physical string) (record.Token, error) {
	m.wait()
	return m.Namespace.Provision(ctx, spec, physical)
}

// endsSoon waits a few seconds for a controller to end, and looks why.
func endsSoon(t *testing.T, what string, ended <-chan error, want string) {
	t.Helper()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the controller ends with %v, want %q", what, err, want)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("%s: the controller runs on", what)
	}
}

// TestEtcdIsExchanged: controllers outlive the etcd that they began with. Whatever answers in its
// place, they end within seconds and say why. They would own shards there.
func TestEtcdIsExchanged(t *testing.T) {
	for _, tc := range []struct {
		name    string
		becomes func(ctx context.Context, t *testing.T, s *system, early *memcoord.Store) *memcoord.Store
		want    string
	}{
		{
			"emptied", func(context.Context, *testing.T, *system, *memcoord.Store) *memcoord.Store { return memcoord.New() },
			"etcd no longer has the deployment",
		},
		{
			"restored", func(_ context.Context, _ *testing.T, _ *system, early *memcoord.Store) *memcoord.Store { return early },
			"etcd has an older state of the deployment",
		},
		{
			"recovered by somebody else", func(ctx context.Context, t *testing.T, s *system, _ *memcoord.Store) *memcoord.Store {
				other := kept(ctx, t, s.coord)
				store := deployment.New(other, name, deployment.Config{})
				for range 100 { // its revisions are higher
					must(store.Reincarnate(ctx))
				}
				d := must(store.Get(ctx))
				s.check(store.Replace(ctx, d, d.Revision, "", ""))
				return other
			},
			"another", // deployment of this name in etcd, or etcd by the beats of other controllers
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSystem(ctx, t)
				s.quiet()
				early := kept(ctx, t, s.coord)
				at := &address{}
				at.now.Store(s.coord.Client())
				one, two := s.runs(ctx, "one", at), s.runs(ctx, "two", at)
				s.begin(ctx)
				s.await(ctx, "the flip", active("v2"))
				pass(5 * time.Second)
				at.now.Store(tc.becomes(ctx, t, s, early))
				endsSoon(t, "one", one, tc.want)
				endsSoon(t, "two", two, tc.want)
			})
		})
	}
}

// TestTwoEtcds: two etcds hold one deployment, whose controllers begin at the same moment. Those of
// one are refused within seconds, and those of the other go on.
func TestTwoEtcds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := unfounded(t, memory(), registry(), stack)
		s.quiet()
		var both sync.WaitGroup // neither makes a collection before both have passed all checks
		both.Add(2)
		runs := func(id string) <-chan error {
			var first sync.Once
			return s.runsWith(ctx, memcoord.New(), controller.Options{ID: id, Wrap: func(_ string, ns record.Namespace) record.Namespace {
				return meets{ns, func() { first.Do(func() { both.Done(); both.Wait() }) }}
			}})
		}
		ended := [2]<-chan error{runs("here"), runs("there")}
		wait := time.After(time.Minute)
		refused := -1
		for refused < 0 {
			var err error
			select {
			case err = <-ended[0]:
				refused = 0
			case err = <-ended[1]:
				refused = 1
			case <-wait:
				t.Fatal("both go on")
			}
			if !strings.Contains(err.Error(), "controllers with another etcd use it for this deployment") {
				t.Fatalf("it is refused with %v", err)
			}
		}
		select {
		case err := <-ended[1-refused]:
			t.Fatalf("the other one ends, too: %v", err)
		case <-time.After(time.Minute):
		}
		cancel()
		<-ended[1-refused]
	})
}

// TestSecondEtcdLater: an etcd whose record is a copy that was recovered takes the databases over,
// and the controllers of the first one are refused while they run.
func TestSecondEtcdLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		s.quiet()
		one := s.runs(ctx, "one", s.coord.Client())
		pass(5 * time.Second)
		other := deployment.New(kept(ctx, t, s.coord), name, deployment.Config{})
		must(other.Reincarnate(ctx))
		for v, db := range s.db {
			pulse := identity.Pulse{Owner: record.Owner{Deployment: name, Version: v}, DB: db, Beats: other}
			var elsewhere *identity.ElsewhereError
			if err := pulse.Beat(ctx); !errors.As(err, &elsewhere) {
				t.Errorf("before that: %v", err)
			}
			s.check(pulse.Accept(ctx))
		}
		endsSoon(t, "one", one, "controllers with another etcd use it for this deployment")
	})
}
