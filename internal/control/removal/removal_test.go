package removal_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/control/removal"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/upgradestate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is a version's database in memory. Like etcd, it has no chunks, and its marks are all that
// it keeps besides kinds.
type database struct{ *memstore.Store }

func (database) UnpinChunks(context.Context) error        { return nil }
func (database) Vacate(context.Context) ([]string, error) { return nil, nil }

// TestRefused: a removal does not begin while something of the deployment is in use, and says what.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		in    func(t *testing.T, w deploymenttest.World)
		kinds []deployment.RemovedKind
		want  string
	}{
		{name: "an upgrade", in: func(t *testing.T, w deploymenttest.World) { w.Begin(t) }, want: "upgrade u1 to v2 is running"},
		{name: "fences of the old version", in: func(t *testing.T, w deploymenttest.World) { open(t, w) }, want: "kind packages of v1 has the fence packages.n1: run 'dbcontroller complete --version v1"},
		{name: "fences of a kind", in: func(t *testing.T, w deploymenttest.World) { open(t, w) }, kinds: []deployment.RemovedKind{{Version: "v1", Kind: "packages"}}, want: "has the fence"},
		{name: "a fence of the served version", in: func(t *testing.T, w deploymenttest.World) { w.Flip(t) }, kinds: []deployment.RemovedKind{{Version: "v2", Kind: "packages"}}, want: "the current version, has the fence packages"},
		{name: "a retirement", in: func(t *testing.T, w deploymenttest.World) {
			open(t, w)
			w.Apply(t, upgradestate.Complete{Version: "v1"})
		}, want: "v1 is being retired"},
		{name: "kept collections", in: func(t *testing.T, w deploymenttest.World) {
			open(t, w)
			w.Apply(t, upgradestate.Complete{Version: "v1", Until: "2036-01-02T03:04:05Z"})
			w.Apply(t, upgradestate.SetAside{Version: "v1"})
		}, want: "the collections of v1 are still kept: run 'dbcontroller complete --version v1 --keep-for 0s'"},
		{name: "a rollout", in: func(t *testing.T, w deploymenttest.World) {
			ro := rollout.New("wave", "id", "v2", [][]string{{deploymenttest.Name}}, rollout.Policy{GateLimitMillis: 1000, OnFailure: rollout.StopOnly}, "", time.Time{})
			if _, err := w.Store.Rollouts().Store(t.Context(), ro, 0); err != nil {
				t.Fatal(err)
			}
		}, want: "rollout wave, which is RUNNING, upgrades it"},
		{name: "a database that is not configured", want: "version v1, at mongo:dbc_v1, is not in dbs of the configuration: add it, or give --lost v1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := deploymenttest.New(t).WithVersions(t)
			if tc.in != nil {
				tc.in(t, w)
			}
			r, _, err := w.Store.Removal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r.Kinds = tc.kinds
			err = removal.Work{Store: w.Store}.Check(t.Context(), r)
			var refused *removal.RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// open ends a switch: clients write to v2.
func open(t *testing.T, w deploymenttest.World) {
	t.Helper()
	d := w.Flip(t)
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			if k.Pending != nil {
				w.Apply(t, upgradestate.Confirmed{Version: ns.Version, Kind: k.Kind, To: k.Pending.To})
			}
		}
	}
}

// arriving is a store in which a controller starts with the first commit.
type arriving struct {
	coord.Store
	arrive *func()
}

func (a arriving) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if arrive := *a.arrive; arrive != nil {
		*a.arrive = nil
		arrive()
	}
	return a.Store.Commit(ctx, conditions, ops)
}

// TestProcessInBetween: a controller that starts between the check and the begin of a removal keeps it
// from beginning. The record is as it was.
func TestProcessInBetween(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	lease := deploymenttest.Lease(t, w.Coord)
	arrive := func() {
		if _, err := w.Coord.Commit(context.Background(), nil, []coord.Op{{Key: deploymenttest.Key("controllers/c-1"), Value: []byte("c-1"), Lease: lease.ID()}}); err != nil {
			t.Error(err)
		}
	}
	work := removal.Work{Store: deployment.New(arriving{w.Coord, &arrive}, deploymenttest.Name, deployment.Config{}), Lost: []string{"v1", "v2"}}
	r, _, err := work.Store.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := r.Record
	if err := work.Check(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err = work.Store.BeginRemoval(t.Context(), r); err == nil || !strings.Contains(err.Error(), "controller c-1 is alive") {
		t.Errorf("begin: %v", err)
	}
	d, err := w.Store.Get(t.Context())
	if before.Revision = d.Revision; err != nil || cmp.Diff(before, d) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(before, d))
	}
}

// TestOtherDatabase: nothing is removed from a database that is not the deployment's.
func TestOtherDatabase(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	store := memstore.NewCluster(memstore.Options{}).Open("v1")
	if _, err := store.Identify(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _, err := w.Store.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	work := removal.Work{Store: w.Store, Databases: map[string]removal.Database{"v1": database{store}}, Lost: []string{"v2"}}
	if err := work.Check(t.Context(), r); err == nil || !strings.Contains(err.Error(), "the database of v1 is not the one that the deployment uses") {
		t.Errorf("check: %v", err)
	}
	if _, _, err := work.Effects(t.Context(), r); err == nil {
		t.Error("effects on another database")
	}
	if _, err := work.Do(t.Context(), r); err == nil || !strings.Contains(err.Error(), "is not the one that the deployment uses") {
		t.Errorf("do: %v", err)
	}
}
