package deployment_test

import (
	"context"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/upgradestate"
)

// breaking ends a watch when the test says so, and then refuses to watch again.
type breaking struct {
	watched
	broken chan struct{}
}

func (s *breaking) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	select {
	case <-s.broken:
		return nil, 0, nil, coord.ErrCompacted
	default:
	}
	kvs, rev, w, err := s.watched.Follow(ctx, prefix)
	return kvs, rev, &breakingWatch{w, s.broken}, err
}

type breakingWatch struct {
	coord.Watch
	broken chan struct{}
}

func (w *breakingWatch) Next(ctx context.Context) ([]coord.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.broken:
			cancel()
		case <-ctx.Done():
		}
	}()
	events, err := w.Watch.Next(ctx)
	select {
	case <-w.broken:
		return nil, coord.ErrCompacted
	default:
		return events, err
	}
}

// TestKnownRecord: a watched record at rest costs no read. During an upgrade and without a watch,
// the store is asked.
func TestKnownRecord(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	calls := &breaking{watched{Store: w.Coord}, make(chan struct{})}
	s := deployment.New(calls, name, deployment.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	known := func(reads int64) upgradestate.Deployment {
		t.Helper()
		calls.gets.Store(0)
		d, err := s.Known(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := calls.gets.Load(); n != reads {
			t.Errorf("%d reads, want %d", n, reads)
		}
		return d
	}
	known(1) // nobody watches
	watch := s.Watch(ctx)
	<-watch
	known(0)
	d, err := s.Apply(ctx, upgradestate.SetPace{Paused: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	// This process must not see a record from before its own transition, however late the watch is.
	if got := known(0); got.Revision < d.Revision {
		t.Errorf("revision %d, want %d", got.Revision, d.Revision)
	}
	// Of others, it sees what the watch has delivered.
	d = w.Apply(t, upgradestate.SetPace{Paused: new(false)})
	for got := range watch {
		if got.Revision >= d.Revision {
			break
		}
	}
	if got := known(0); got.Revision != d.Revision || got.Pace.Paused {
		t.Errorf("revision %d, want %d: %+v", got.Revision, d.Revision, got.Pace)
	}
	if _, err := s.Apply(ctx, upgradestate.Begin{ID: "u1", TargetVersion: "v2"}); err != nil {
		t.Fatal(err)
	}
	known(1)
	if _, err := s.Apply(ctx, upgradestate.Abort{ID: "u1"}); err != nil {
		t.Fatal(err)
	}
	known(0)
	close(calls.broken)
	for read := false; !read; { // until the loss of the watch is noticed
		calls.gets.Store(0)
		if _, err := s.Known(ctx); err != nil {
			t.Fatal(err)
		}
		read = calls.gets.Load() == 1
	}
	cancel()
	for range watch {
	}
}

// TestBeatConfirmsTheRecord: a beat is stored in one commit. It succeeds only in the etcd that this
// process knows, and then confirms the record.
func TestBeatConfirmsTheRecord(t *testing.T) {
	t.Parallel()
	beat := func(n uint64) identity.Beat { return identity.Beat{Count: n, Nonce: "n"} }
	for test, c := range map[string]struct {
		happens func(t *testing.T, w *deploymenttest.World, s *deployment.Store, db *memcoord.Store)
		want    bool
	}{
		"nothing": {func(*testing.T, *deploymenttest.World, *deployment.Store, *memcoord.Store) {}, true},
		"another process counts": {func(t *testing.T, w *deploymenttest.World, s *deployment.Store, db *memcoord.Store) {
			if err := deployment.New(db, name, deployment.Config{}).SaveBeat(t.Context(), "v1", beat(9)); err != nil {
				t.Error(err)
			}
		}, false},
		"another etcd": {func(t *testing.T, w *deploymenttest.World, s *deployment.Store, db *memcoord.Store) {
			if _, err := deployment.New(db, name, deployment.Config{}).Reincarnate(t.Context()); err != nil {
				t.Error(err)
			}
		}, false},
		"another process changes the record": {func(t *testing.T, w *deploymenttest.World, s *deployment.Store, db *memcoord.Store) {
			w.Apply(t, upgradestate.SetPace{Paused: new(true)})
		}, false},
		"the record is deleted": {func(t *testing.T, w *deploymenttest.World, s *deployment.Store, db *memcoord.Store) {
			if _, err := db.Commit(t.Context(), nil, []coord.Op{{Key: deployment.DefaultPrefix + "/" + name + "/record", Delete: true}}); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			w := deploymenttest.New(t).WithVersions(t)
			calls := &watched{Store: w.Coord}
			s := deployment.New(calls, name, deployment.Config{})
			incarnation, err := s.Incarnation(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SaveBeat(ctx, "v1", beat(1)); err != nil {
				t.Fatal(err)
			}
			d, err := s.Get(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := s.AdvanceBeat(ctx, "v1", "another", beat(1), beat(2)); ok || err != nil {
				t.Errorf("in another incarnation: %t, %v", ok, err)
			}
			c.happens(t, &w, s, w.Coord)
			calls.commits.Store(0)
			calls.gets.Store(0)
			ok, err := s.AdvanceBeat(ctx, "v1", incarnation, beat(1), beat(2))
			if ok != c.want || err != nil {
				t.Errorf("the beat is stored: %t, %v, want %t", ok, err, c.want)
			}
			calls.want(t, 0, 1)
			if got := s.Confirmed(); (got.Number == 1) != c.want || c.want && (got.Revision != d.Revision || got.Incarnation != incarnation) {
				t.Errorf("confirmed: %+v, want %t", got, c.want)
			}
			stored, _, err := s.LoadBeat(ctx, "v1")
			if err != nil || (stored == beat(2)) != c.want {
				t.Errorf("stored is %+v: %v", stored, err)
			}
		})
	}
}
