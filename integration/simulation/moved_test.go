package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/upgradestate"
)

// sharded is two databases in memory whose cluster may recreate their collections.
func sharded() map[string]database {
	return map[string]database{
		"v1": memstore.NewCluster(memstore.Options{Lag: 3, Moves: true}).Open("old"),
		"v2": memstore.NewCluster(memstore.Options{Start: 1 << 20, Moves: true}).Open("new"),
	}
}

// TestMovedByTheCluster: the cluster recreates all collections of a version, at rest and in the steps of
// a switch, while clients write. Controllers accept the new ones, an attempt to switch ends with the
// reason, and the next upgrade switches. Nothing is lost.
func TestMovedByTheCluster(t *testing.T) {
	for i, tc := range cases([]struct {
		version string
		at      string // "" is before the upgrade
	}{
		{"v1", ""}, {"v2", ""}, {"v1", "at HOLD"}, {"v2", "at HOLD"}, {"v1", "at DRAIN"}, {"v2", "at DRAIN"}, {"v1", "at SEAL_TARGET"},
	}) {
		t.Run(strings.TrimSpace(tc.version+" "+tc.at), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { moveInTraffic(t, uint64(i), tc.version, tc.at) })
		})
	}
}

func moveInTraffic(t *testing.T, seed uint64, version, at string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystemOf(ctx, t, sharded(), registry(), stack)
	s.quiet()
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	tr.lenient = true // writes may wait for the new collections for too long
	stop := drive(ctx, tr, seed, 3, 30, 10*time.Millisecond)
	move := s.db[version].(*memstore.Store).MovePrimary
	tp := &trap{moment: moment{what: at}, passes: true, spring: func(*process) { move() }}
	c := s.controllerProcess(ctx, "controller-1", tp.wrap)
	pass(5 * time.Second)
	before, err := s.admin.Get(ctx)
	s.check(err)
	if at == "" {
		move()
	}
	s.beginSoon(ctx)
	d := s.await(ctx, "what the cluster made to be accepted", func(d upgradestate.Deployment) bool { return d.Epoch > before.Epoch })
	if d.CurrentVersion != "v1" {
		t.Fatalf("%s is active", d.CurrentVersion)
	}
	if said := fmt.Sprint(d.History); at != "" && !strings.Contains(said, "was recreated") {
		t.Errorf("the attempt ended without the reason: %s", said)
	}
	s.beginSoon(ctx)
	s.await(ctx, "the flip", active("v2"))
	pass(2 * time.Second)
	stop()
	tr.settle(ctx, s)
	if tr.acked["v1"] == 0 || tr.acked["v2"] == 0 {
		t.Errorf("acknowledged were %v", tr.acked)
	}
	cancel()
	pa.kill()
	c.kill()
}

// beginSoon begins an upgrade as soon as the record allows it, unless one runs.
func (s *system) beginSoon(ctx context.Context) {
	s.t.Helper()
	for range 600 {
		s.begun++
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: fmt.Sprintf("upgrade-%d", s.begun), TargetVersion: "v2"})
		d, getErr := s.admin.Get(ctx)
		s.check(getErr)
		if err == nil || d.Upgrade != nil || d.CurrentVersion == "v2" {
			return
		}
		pass(100 * time.Millisecond)
	}
	s.t.Fatal("no upgrade can begin")
}

// TestRestoredIsNotMoved: somebody drops a collection and restores it from an older state, before or after
// the cluster moves it. It looks like the cluster's work, and no controller accepts it.
func TestRestoredIsNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystemOf(ctx, t, sharded(), registry(), stack)
		s.quiet()
		c := s.controller(ctx, "controller-1", nil)
		pass(5 * time.Second)
		before, err := s.admin.Get(ctx)
		s.check(err)
		db := s.db["v1"].(*memstore.Store)
		ns, _ := before.Namespace("v1")
		name := ns.Kinds[0].Physical
		db.MovePrimary()
		s.check(db.DropAndRestore(ctx, name, func(f *memstore.Foreign) error {
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "older"}})
			s.check(err)
			return f.Insert(ctx, name, doc)
		}))
		db.MovePrimary()
		pass(2 * time.Minute)
		d, err := s.admin.Get(ctx)
		s.check(err)
		if now, _ := d.Namespace("v1"); d.Epoch != before.Epoch || now.Kinds[0].ID != ns.Kinds[0].ID {
			t.Fatalf("an older collection was accepted: %+v", now.Kinds)
		}
		cancel()
		c.kill()
	})
}
