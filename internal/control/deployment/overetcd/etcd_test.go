// Package overetcd_test has the tests of package deployment over a real etcd. They are no tests of that
// package's own folder, for the go command gives those who use a package the modules that its
// tests need, and nobody needs an etcd server for that (integration.TestServiceOutsideTheTree).
package overetcd_test

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/upgradestate"
)

// TestOverEtcd goes once through what memcoord might imitate wrongly: conflicts, leases
// that hand a key over, watches.
func TestOverEtcd(t *testing.T) {
	t.Parallel()
	etcd, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := etcdcoord.Open(t.Context(), etcdcoord.Config{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	s := deployment.New(c, name, deployment.Config{})
	if _, err := s.Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	apply := func(ev upgradestate.Event) {
		t.Helper()
		if _, err := s.Apply(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	for version, id := range map[string]string{"v1": "a", "v2": "b"} {
		apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
			Version: version, Location: "mongo:" + id,
			Kinds: []upgradestate.Kind{{Kind: "lrps", Physical: "lrps.n1", ID: id}},
		}})
	}
	apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h1"}})
	apply(upgradestate.Begin{ID: "u1", TargetVersion: "v2"})

	watch := s.Watch(t.Context())
	var g errgroup.Group
	for shard := range 4 {
		g.Go(func() error {
			_, err := s.Apply(t.Context(), upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{shard}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for d := range watch {
		if upgradestate.AllReady(d) {
			break
		}
	}
	for i := range 3 {
		if err := s.Park(t.Context(), deploymenttest.Parked(dir, 1, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Waive(t.Context(), "packages", "p-1"); err != nil {
		t.Error(err)
	}
	if n, err := (deployment.ForDriver{Store: s}).Parked(t.Context()); n != 2 || err != nil {
		t.Errorf("%d are parked, %v", n, err)
	}

	// One lease takes a registration over from another, whose end it survives.
	apply(upgradestate.StartSwitch{ID: "u1"})
	first, err := c.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	state := deploymenttest.Server("bbs-1")
	state.AckID, state.AckAttempt = "u1", 2
	for _, l := range []coord.Lease{first, second} {
		if err := s.Register(t.Context(), l, state); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Held(t.Context(), "u1", 2); err != nil {
		t.Error(err)
	}
	servers, err := s.Servers(t.Context())
	if err != nil || !slices.ContainsFunc(servers, func(x upgradestate.ServerState) bool { return x.ID == state.ID }) {
		t.Errorf("servers %+v, %v", servers, err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
