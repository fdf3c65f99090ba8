package deployment_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// watched counts the reads, commits and watches of a coord.Store. Tests exchange the store.
type watched struct {
	coord.Store
	gets, commits, follows atomic.Int64
}

func (s *watched) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	s.follows.Add(1)
	return s.Store.Follow(ctx, prefix)
}

func (s *watched) Get(ctx context.Context, key string) (coord.KV, error) {
	s.gets.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *watched) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	s.commits.Add(1)
	return s.Store.Commit(ctx, conditions, ops)
}

func (s *watched) want(t *testing.T, gets, commits int64) {
	t.Helper()
	if g, c := s.gets.Swap(0), s.commits.Swap(0); g != gets || c != commits {
		t.Errorf("%d reads and %d commits, want %d and %d", g, c, gets, commits)
	}
}

// TestTransitionOfAKnownRecord: the process that made the last transition makes the next one without
// a read. Another process's transition in between costs a second commit, and is never overwritten.
func TestTransitionOfAKnownRecord(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	calls := &watched{Store: w.Coord}
	s := deployment.New(calls, name, deployment.Config{})
	apply := func(ev upgradestate.Event) upgradestate.Deployment {
		t.Helper()
		d, err := s.Apply(t.Context(), ev)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	apply(upgradestate.Begin{ID: "u1", TargetVersion: "v2"})
	calls.want(t, 1, 1) // nothing is known yet
	d := apply(upgradestate.AskSwitch{})
	calls.want(t, 0, 1)
	if again := apply(upgradestate.AskSwitch{}); again.Revision != d.Revision {
		t.Errorf("an event without an effect: revision %d, want %d", again.Revision, d.Revision)
	}
	calls.want(t, 1, 0) // only the stored record says that it has no effect

	// What the known record refuses, the stored one may allow.
	w.Apply(t, upgradestate.Abort{ID: "u1"})
	apply(upgradestate.Begin{ID: "u2", TargetVersion: "v2"})
	calls.want(t, 1, 1)

	// The conflict brings what other processes have stored.
	w.Apply(t, upgradestate.AskSwitch{})
	d = apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v3", Location: "mongo:dbc_v3", Identity: upgradestate.Identity{Cluster: "replicaSet/c3", Database: "d3"},
		Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: "packages.n1", ID: "c1", Fence: "view"}},
	}})
	if _, announced := d.Namespace("v3"); !d.Upgrade.SwitchAsked || !announced {
		t.Errorf("got %+v, v3 announced: %t, want both transitions", d.Upgrade, announced)
	}
	calls.want(t, 0, 2)
}

// TestReportsAtTheSameTime: controllers that report their shards at the same time conflict. The later
// one makes one further call of the store, and no read. In a switch that happens while writes are held.
func TestReportsAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Begin(t)
	var calls [2]*watched
	var stores [2]*deployment.Store
	for i := range stores {
		calls[i] = &watched{Store: w.Coord}
		stores[i] = deployment.New(calls[i], name, deployment.Config{})
		if _, err := stores[i].Get(t.Context()); err != nil { // as their watches do
			t.Fatal(err)
		}
		calls[i].want(t, 1, 0)
	}
	var d upgradestate.Deployment
	for shard, commits := range []int64{1, 2, 2, 2} {
		var err error
		d, err = stores[shard%2].Apply(t.Context(), upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{shard}})
		if err != nil {
			t.Fatal(err)
		}
		calls[shard%2].want(t, 0, commits)
	}
	if !slices.Equal(d.Upgrade.ReadyShards, []int{0, 1, 2, 3}) {
		t.Errorf("ready are %v", d.Upgrade.ReadyShards)
	}
}

// TestRestoredStoreHasOtherValues: a store that was restored from a backup gives revisions again. A
// transition of the former record must not replace the restored one.
func TestRestoredStoreHasOtherValues(t *testing.T) {
	t.Parallel()
	former, restored := deploymenttest.New(t).WithVersions(t), deploymenttest.New(t).WithVersions(t)
	calls := &watched{Store: former.Coord}
	s := deployment.New(calls, name, deployment.Config{})
	if _, err := s.Apply(t.Context(), upgradestate.Begin{ID: "former", TargetVersion: "v2"}); err != nil {
		t.Fatal(err)
	}
	d := restored.Apply(t, upgradestate.Begin{ID: "restored", TargetVersion: "v2"})
	if known, err := s.Get(t.Context()); err != nil || known.Revision != d.Revision {
		t.Fatalf("revisions %d and %d, %v: the test needs equal ones", known.Revision, d.Revision, err)
	}
	calls.Store = restored.Coord
	for range 2 {
		d, err := s.Apply(t.Context(), upgradestate.AskSwitch{})
		if err != nil || d.Upgrade.ID != "restored" || !d.Upgrade.SwitchAsked {
			t.Errorf("got %+v, %v", d.Upgrade, err)
		}
	}
}

// TestAcknowledgesWithoutARead: a server that acknowledges a hold, and a controller that does so for a
// client, make one trip to the store while writes are held. A registration that has ended or belongs to
// another process is read, and does not come back.
func TestAcknowledgesWithoutARead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := deploymenttest.New(t)
	calls := &watched{Store: w.Coord}
	s := deployment.New(calls, name, deployment.Config{})
	lease, err := w.Coord.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	register := func(ack uint64) {
		t.Helper()
		if err := s.Register(ctx, lease, upgradestate.ServerState{ID: "s1", AckID: "u1", AckAttempt: ack}); err != nil {
			t.Fatal(err)
		}
	}
	acked := func() upgradestate.ServerState {
		t.Helper()
		servers, err := w.Store.Servers(ctx)
		if err != nil || len(servers) != 1 {
			t.Fatalf("servers %+v, %v", servers, err)
		}
		return servers[0]
	}
	register(1)
	calls.want(t, 1, 1)
	register(2)
	calls.want(t, 0, 1)
	if err := s.AckHold(ctx, "s1", "u1", 3); err != nil {
		t.Fatal(err)
	}
	calls.want(t, 0, 1)
	// Another controller acknowledges for the same client.
	if err := w.Store.AckHold(ctx, "s1", "u2", 1); err != nil {
		t.Fatal(err)
	}
	if err := s.AckHold(ctx, "s1", "u2", 2); err != nil {
		t.Fatal(err)
	}
	calls.want(t, 0, 2)
	if got := acked(); got.AckID != "u2" || got.AckAttempt != 2 {
		t.Errorf("registered is %+v", got)
	}
	if err := lease.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.AckHold(ctx, "s1", "u2", 3); !errors.Is(err, deployment.ErrNotRegistered) {
		t.Errorf("acknowledged without a registration: %v", err)
	}
	if servers, err := w.Store.Servers(ctx); len(servers) > 0 || err != nil {
		t.Errorf("servers %+v, %v", servers, err)
	}
}
