package simulation_test

import (
	"context"
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TestWrongPlace: of two controllers one has another database for the old version, with
// collections of the same names: in the same cluster, or in one whose clock is another. It
// takes over shards, copied ones among them, whose changes it would never see. It ends and
// says why, and nothing is lost.
func TestWrongPlace(t *testing.T) {
	eachSeed(t, 6, wrongPlace)
}

func wrongPlace(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cluster := memstore.NewCluster(memstore.Options{Lag: 3})
	s := newSystemOf(ctx, t, map[string]database{
		"v1": cluster.Open("old"), "v2": memstore.NewCluster(memstore.Options{Start: 1 << 20}).Open("new"),
	}, registry(), stack)
	s.quiet()
	wrong := cluster.Open("older")
	if seed%2 == 1 {
		wrong = memstore.NewCluster(memstore.Options{Start: 1 << 30}).Open("old")
	}
	s.identify(ctx)
	_, err := syncer.Provision(ctx, wrong, upgradestate.New(name, "v1", ring), "v1", "mem:v1", s.direction().SourceKinds(), func(string) record.FenceClass { return "" })
	s.check(err)

	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 3, 50, 20*time.Millisecond)
	right := s.controller(ctx, "right", s.guarded(nil))
	pass(time.Duration(seed) * 3 * time.Second) // nothing is copied yet, or all is copied and compared
	if seed >= 4 {
		s.begin(ctx)
	}
	astray := s.controller(ctx, "astray", s.guarded(wrong))
	select {
	case <-astray.done:
		if astray.astray == nil || astray.astray.Version != "v1" {
			t.Errorf("it ended with %v", astray.astray)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on with the wrong database")
		astray.kill()
	}
	if seed < 4 {
		s.begin(ctx)
	}
	s.await(ctx, "the flip", active("v2"))
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	cancel()
	right.kill()
	pa.kill()
}

// identify notes in both databases, and in the record, which they are.
func (s *system) identify(ctx context.Context) {
	s.t.Helper()
	for _, v := range []string{"v1", "v2"} {
		d, err := s.admin.Get(ctx)
		s.check(err)
		id, err := identity.Adopt(ctx, d, v, s.db[v])
		s.check(err)
		ns, _ := d.Namespace(v)
		_, err = s.admin.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: v, Location: ns.Location, Identity: id}})
		s.check(err)
	}
}

// guarded wraps a controller's databases as a real one does; instead of that of v1 it has
// another one, if that is not nil. The databases alone are compared: nobody keeps the marks
// of a switch here.
func (s *system) guarded(instead record.Namespace) func(string, record.Namespace) record.Namespace {
	return func(version string, ns record.Namespace) record.Namespace {
		if version == "v1" && instead != nil {
			ns = instead
		}
		return identity.Guard(ns, func(ctx context.Context) error {
			return identity.Same(ctx, s.admin, map[string]record.Marker{version: ns})
		})
	}
}
