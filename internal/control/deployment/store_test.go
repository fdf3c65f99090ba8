package deployment_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/upgradestate"
)

func TestCreateReturnsTheOneThatStands(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	d, err := w.Store.Create(t.Context(), "v9", 64)
	if err != nil {
		t.Fatal(err)
	}
	if d.CurrentVersion != "v1" || d.RingSize != 4 || d.Revision == 0 {
		t.Errorf("got %+v, want the first one", d)
	}
	for _, bad := range []string{"", "bbs", "services/a/deployments/", "services/a/deployments/b/c", "services//deployments/x"} {
		var invalid *deployment.InvalidError
		if _, err := deployment.New(w.Coord, bad, deployment.Config{}).Create(t.Context(), "v1", 4); !errors.As(err, &invalid) {
			t.Errorf("name %q: %v, want an InvalidError", bad, err)
		}
	}
	for _, bad := range []struct {
		version string
		ring    int
	}{{"", 4}, {"v1", 0}, {"v1", -1}} {
		if _, err := deployment.New(w.Coord, name+"x", deployment.Config{}).Create(t.Context(), bad.version, bad.ring); err == nil {
			t.Errorf("Create(%q, %d): no error", bad.version, bad.ring)
		}
	}
}

func TestCreateWithLostAnswers(t *testing.T) {
	t.Parallel()
	for _, fault := range []memcoord.Fault{memcoord.LoseRequest, memcoord.LoseAnswer} {
		c := memcoord.New()
		c.OnCommit(deploymenttest.Once(fault))
		d, err := deployment.New(c, name, deployment.Config{}).Create(t.Context(), "v1", 4)
		if err != nil || d.CurrentVersion != "v1" {
			t.Errorf("fault %d: %+v, %v", fault, d, err)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	other := "services/bbs.example.com/deployments/us-west"
	if _, err := deployment.New(w.Coord, other, deployment.Config{}).Create(t.Context(), "v3", 1); err != nil {
		t.Fatal(err)
	}
	corrupt, newer := "services/a/deployments/corrupt", "services/a/deployments/newer"
	for name, value := range map[string]string{corrupt: "{", newer: `{"format": 99}`} {
		store := deployment.New(w.Coord, name, deployment.Config{})
		if _, err := store.Create(t.Context(), "v1", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Coord.Commit(t.Context(), nil, []coord.Op{{Key: store.Root() + "/record", Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	ds, unreadable, err := w.Store.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(unreadable) != 2 || !errors.Is(unreadable[corrupt], deployment.ErrCorrupt) || !errors.Is(unreadable[newer], deployment.ErrFormat) {
		t.Errorf("unreadable are %v", unreadable)
	}
	var got []string
	for _, d := range ds {
		got = append(got, d.Name+" "+d.CurrentVersion)
	}
	if diff := cmp.Diff([]string{other + " v3", name + " v1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGetRefusesWhatItCannotTrust(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	if _, err := deployment.New(w.Coord, name+"x", deployment.Config{}).Get(t.Context()); !errors.Is(err, deployment.ErrNotFound) || !errors.Is(err, coord.ErrNotFound) {
		t.Errorf("absent: %v", err)
	}
	for value, want := range map[string]error{
		`{"format": 99, "ringSize": "many"}`: deployment.ErrFormat,
		`{"format": 1, "ringSize": "many"}`:  deployment.ErrCorrupt,
		`{"format": 1, "name": "x"}`:         deployment.ErrCorrupt,
		`{}`:                                 deployment.ErrCorrupt,
		`no JSON`:                            deployment.ErrCorrupt,
	} {
		deploymenttest.Put(t, w.Coord, deploymenttest.Key("record"), value)
		if _, err := w.Store.Get(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", value, err, want)
		}
		if _, err := w.Store.Apply(t.Context(), upgradestate.Abort{}); !errors.Is(err, want) {
			t.Errorf("apply to %s: %v, want %v", value, err, want)
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	before, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := w.Begin(t)
	if d.Revision <= before.Revision || d.Upgrade == nil {
		t.Fatalf("got %+v", d)
	}
	stored, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, stored); diff != "" {
		t.Errorf("returned and stored differ (-returned +stored):\n%s", diff)
	}
	if again := w.Begin(t); again.Revision != d.Revision {
		t.Errorf("a repetition wrote revision %d over %d", again.Revision, d.Revision)
	}
	var refused *upgradestate.RefusedError
	if _, err := w.Store.Apply(t.Context(), upgradestate.Begin{ID: "u2", TargetVersion: "v3"}); !errors.As(err, &refused) {
		t.Errorf("another target: %v, want a RefusedError", err)
	}
	if _, err := w.Store.Apply(t.Context(), upgradestate.Report{ID: "u0", Shards: []int{1}}); !errors.Is(err, upgradestate.ErrOutdated) || !strings.HasPrefix(err.Error(), "report: ") {
		t.Errorf("another upgrade: %v, want ErrOutdated", err)
	}
}

func TestApplyComparesConditions(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Begin(t)
	mine := deploymenttest.Lock(deploymenttest.Put(t, w.Coord, deploymenttest.Key("shards/00001"), "me"))
	report := func(shard int) upgradestate.Report {
		return upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{shard}}
	}
	w.Apply(t, report(1), mine)
	lost := mine
	lost.Revision--
	_, err := w.Store.Apply(t.Context(), report(2), mine, lost)
	if !errors.Is(err, deployment.ErrOwnership) || !errors.Is(err, coord.ErrConflict) {
		t.Errorf("lost lock: %v, want ErrOwnership", err)
	}
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1}, d.Upgrade.ReadyShards); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	many := make([]coord.Condition, coord.MaxOps-1)
	if _, err := w.Store.Apply(t.Context(), report(2), many...); err == nil || strings.Contains(err.Error(), "commit of") {
		t.Errorf("too many conditions: %v", err)
	}
}

// TestApplyConcurrently: no report is lost, however they meet, and whatever the
// store does not answer.
func TestApplyConcurrently(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	w.Begin(t)
	var g errgroup.Group
	for shard := range 4 {
		c := w.Coord.Client()
		var mu sync.Mutex
		n := shard
		c.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
			mu.Lock()
			defer mu.Unlock()
			n++
			return []memcoord.Fault{memcoord.Deliver, memcoord.LoseRequest, memcoord.LoseAnswer}[n%3]
		})
		g.Go(func() error {
			s := deployment.New(c, name, deployment.Config{})
			for range 10 {
				if _, err := s.Apply(t.Context(), upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{shard}}); err != nil {
					return err
				}
				if _, err := s.Apply(t.Context(), upgradestate.Withdraw{ID: "u1", Shards: []int{shard}}); err != nil {
					return err
				}
			}
			_, err := s.Apply(t.Context(), upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{shard}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !upgradestate.AllReady(d) {
		t.Errorf("ready are %v, want all", d.Upgrade.ReadyShards)
	}
}

// TestApplyFlipsOnce: whoever flips has looked at both databases. A commit that has not happened is
// not repeated without another look, and one whose answer is lost is done.
func TestApplyFlipsOnce(t *testing.T) {
	t.Parallel()
	flip := upgradestate.Flip{ID: "u1"}
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, w deploymenttest.World) memcoord.Fault // with the first commit
		want   error                                                     // nil: it is done
	}{
		{"lost request", func(*testing.T, deploymenttest.World) memcoord.Fault { return memcoord.LoseRequest }, coord.ErrUnknown},
		{"lost answer", func(*testing.T, deploymenttest.World) memcoord.Fault { return memcoord.LoseAnswer }, nil},
		{"other change", func(t *testing.T, w deploymenttest.World) memcoord.Fault {
			other := deployment.New(w.Coord.Client(), deploymenttest.Name, deployment.Config{})
			rate := 7
			if _, err := other.Apply(t.Context(), upgradestate.SetPace{MaxRate: &rate}); err != nil {
				t.Error(err)
			}
			return memcoord.Deliver
		}, coord.ErrConflict},
		{"other flip", func(t *testing.T, w deploymenttest.World) memcoord.Fault {
			other := deployment.New(w.Coord.Client(), deploymenttest.Name, deployment.Config{})
			if _, err := other.Apply(t.Context(), flip); err != nil {
				t.Error(err)
			}
			return memcoord.LoseRequest
		}, nil},
	} {
		w := deploymenttest.New(t).WithVersions(t)
		w.Sealed(t)
		commits := 0
		w.Coord.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
			if commits++; commits > 1 {
				return memcoord.Deliver
			}
			return tc.before(t, w)
		})
		d, err := w.Store.Apply(t.Context(), flip)
		if !errors.Is(err, tc.want) || (err == nil) != (d.CurrentVersion == "v2") || commits != 1 {
			t.Errorf("%s: at %q, %v after %d commits, want %v", tc.name, d.CurrentVersion, err, commits, tc.want)
		}
		// The next call, after another look, flips or finds the flip.
		if d, err := w.Store.Apply(t.Context(), flip); err != nil || d.CurrentVersion != "v2" {
			t.Errorf("%s: again: at %q, %v", tc.name, d.CurrentVersion, err)
		}
	}
}

// TestApplySettlesUnknown: a transition whose answer is lost is done, not outdated; one whose
// request is lost is tried again; one that cannot be resolved is unknown.
func TestApplySettlesUnknown(t *testing.T) {
	t.Parallel()
	for _, fault := range []memcoord.Fault{memcoord.LoseRequest, memcoord.LoseAnswer} {
		w := deploymenttest.New(t).WithVersions(t)
		w.Begin(t)
		w.Coord.OnCommit(deploymenttest.Once(fault))
		d, err := w.Store.Apply(t.Context(), upgradestate.Abort{ID: "u1", Reason: "x"})
		if err != nil || d.Upgrade != nil {
			t.Errorf("fault %d: %+v, %v", fault, d.Upgrade, err)
		}
	}
	w := deploymenttest.New(t).WithVersions(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.Coord.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
		cancel()
		return memcoord.LoseAnswer
	})
	if _, err := w.Store.Apply(ctx, upgradestate.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h1"}); !errors.Is(err, coord.ErrUnknown) {
		t.Errorf("ctx ended: %v, want ErrUnknown", err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t).WithVersions(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client := w.Coord.Client()
		watch := deployment.New(client, name, deployment.Config{}).Watch(ctx)
		d := <-watch
		if d.CurrentVersion != "v1" || d.Upgrade != nil {
			t.Fatalf("first: %+v", d)
		}
		// Many changes, nobody looks: the newest is what is seen.
		w.Begin(t)
		for shard := range 4 {
			w.Apply(t, upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{shard}})
		}
		synctest.Wait()
		if d = <-watch; len(d.Upgrade.ReadyShards) != 4 {
			t.Errorf("conflated: ready are %v", d.Upgrade.ReadyShards)
		}
		// Neighbours are none of its business.
		deploymenttest.Put(t, w.Coord, deploymenttest.Key("plans/x"), "{}")
		// The network goes away, and what happened meanwhile is compacted.
		client.Cut()
		w.Apply(t, upgradestate.StartSwitch{ID: "u1"})
		last, err := w.Store.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Coord.Compact(t.Context(), last.Revision); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		select {
		case d := <-watch:
			t.Errorf("cut off, and got %+v", d)
		default:
		}
		client.Heal()
		if d = <-watch; d.Upgrade.State != upgradestate.Switching {
			t.Errorf("after the cut: %+v", d.Upgrade)
		}
		// A record that cannot be read is not delivered, and is no end.
		value, err := w.Coord.Get(t.Context(), deploymenttest.Key("record"))
		if err != nil {
			t.Fatal(err)
		}
		deploymenttest.Put(t, w.Coord, deploymenttest.Key("record"), `{"format": 99}`)
		synctest.Wait()
		deploymenttest.Put(t, w.Coord, deploymenttest.Key("record"), string(value.Value))
		next := <-watch
		if next.Revision <= d.Revision || next.Upgrade.State != upgradestate.Switching {
			t.Errorf("after a bad record: %+v", next)
		}
		cancel()
		if d, open := <-watch; open {
			t.Errorf("after the end: %+v", d)
		}
	})
}

// TestWatchOutlivesADeadWatch: a watch that says nothing although there is something is
// found out by listing again.
func TestWatchOutlivesADeadWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t).WithVersions(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watch := deployment.New(deaf{w.Coord}, name, deployment.Config{}).Watch(ctx)
		<-watch
		w.Begin(t)
		start := time.Now()
		if d := <-watch; d.Upgrade == nil {
			t.Errorf("got %+v, want the upgrade", d)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("took %s", took)
		}
		cancel()
		for range watch {
		}
	})
}

// TestWatchesShareOne: the watches of a process cost the store one. Each begins with the record as it is
// now, also where the shared one is behind, and ends by itself.
func TestWatchesShareOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t).WithVersions(t)
		calls := &watched{Store: w.Coord}
		s := deployment.New(calls, name, deployment.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var watches []<-chan upgradestate.Deployment
		for range 12 {
			watches = append(watches, s.Watch(ctx))
		}
		for _, watch := range watches {
			<-watch // all have joined
		}
		early, leave := context.WithCancel(ctx)
		gone := s.Watch(early)
		<-gone
		leave()
		for range gone {
		}
		want := w.Begin(t)
		for i, watch := range watches {
			if d := <-watch; d.Revision != want.Revision {
				t.Errorf("watch %d has revision %d, want %d", i, d.Revision, want.Revision)
			}
		}
		if n := calls.follows.Load(); n != 1 {
			t.Errorf("%d watches of the store, want 1", n)
		}
		cancel()
		for _, watch := range watches {
			for range watch {
			}
		}
		again, stop := context.WithCancel(t.Context())
		watch := s.Watch(again)
		if d := <-watch; d.Revision != want.Revision || calls.follows.Load() != 2 {
			t.Errorf("after all have ended: revision %d, %d watches of the store", d.Revision, calls.follows.Load())
		}
		stop()
		for range watch {
		}

		behind := deployment.New(deaf{w.Coord}, name, deployment.Config{})
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		first := behind.Watch(ctx)
		<-first
		want = w.Apply(t, upgradestate.AskSwitch{})
		second := behind.Watch(ctx)
		if d := <-second; d.Revision != want.Revision {
			t.Errorf("a later watch begins with revision %d, want %d", d.Revision, want.Revision)
		}
		cancel()
		for range first {
		}
		for range second {
		}
	})
}

// deaf is a store whose watches never say anything.
type deaf struct{ coord.Store }

func (d deaf) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	kvs, rev, err := d.List(ctx, prefix)
	return kvs, rev, silence{}, err
}

type silence struct{}

func (silence) Next(ctx context.Context) ([]coord.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (silence) Close() {}
