package removal_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/control/removal"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// lived is a deployment whose versions are in databases in memory.
type lived struct {
	deploymenttest.World
	cluster *memstore.Cluster
	stores  map[string]*memstore.Store
	work    removal.Work
}

// newLived provisions the kind packages in each version.
func newLived(t *testing.T, versions ...string) lived {
	t.Helper()
	ctx := t.Context()
	l := lived{World: deploymenttest.New(t), cluster: memstore.NewCluster(memstore.Options{}), stores: map[string]*memstore.Store{}}
	l.work = removal.Work{Store: l.Store, Databases: map[string]removal.Database{}}
	for _, version := range versions {
		s := l.cluster.Open(version)
		l.stores[version], l.work.Databases[version] = s, database{s}
		id, err := s.Identify(ctx)
		if err != nil {
			t.Fatal(err)
		}
		k := provisioned(t, s)
		d, err := l.Store.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := identity.Take(ctx, d, version, s, []upgradestate.Kind{k}, nil); err != nil {
			t.Fatal(err)
		}
		l.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
			Version: version, Location: "mem:" + version,
			Identity: upgradestate.Identity{Cluster: id.Cluster, Database: id.Database}, Kinds: []upgradestate.Kind{k},
		}})
	}
	return l
}

func provisioned(t *testing.T, s *memstore.Store) upgradestate.Kind {
	t.Helper()
	tok, err := s.Provision(t.Context(), record.KindSpec{Name: "packages"}, "packages.n1")
	if err != nil {
		t.Fatal(err)
	}
	class, restore, err := s.Prepare(t.Context(), tok, "")
	if err != nil {
		t.Fatal(err)
	}
	return upgradestate.Kind{Kind: "packages", Physical: tok.Name, ID: tok.ID, Fence: string(class), Restore: restore}
}

// to switches to a version, and carries out each rename in its database.
func (l lived) to(t *testing.T, version string) upgradestate.Deployment {
	t.Helper()
	id := "to-" + version
	l.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: version, TransformHash: id}})
	l.Apply(t, upgradestate.Begin{ID: id, TargetVersion: version, TransformHash: id})
	l.Apply(t, upgradestate.Report{ID: id, State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{0, 1, 2, 3}})
	l.Apply(t, upgradestate.StartSwitch{ID: id})
	d := l.rename(t, l.Apply(t, upgradestate.Held{ID: id}))
	d = l.Apply(t, upgradestate.Report{ID: id, State: d.Upgrade.State, Attempt: d.Upgrade.Attempt, Fences: upgradestate.FenceNames(d), Shards: []int{0, 1, 2, 3}})
	l.rename(t, l.Apply(t, upgradestate.Drained{ID: id}))
	return l.rename(t, l.Apply(t, upgradestate.Flip{ID: id, Switch: upgradestate.Switch{At: "2026-01-02T03:04:05Z"}}))
}

// rename carries out and confirms what is announced.
func (l lived) rename(t *testing.T, d upgradestate.Deployment) upgradestate.Deployment {
	t.Helper()
	for again := true; again; {
		again = false
		for _, ns := range d.Namespaces {
			for _, k := range ns.Kinds {
				if k.Pending == nil {
					continue
				}
				f := record.Fence{Class: record.FenceClass(k.Fence), Token: record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}, To: k.Pending.To, Ends: k.Fenced}
				do := l.stores[ns.Version].Fence
				if k.Pending.Reason == upgradestate.PendingOpen {
					f.To, f.Token.Name, do = k.Pending.From, k.Pending.To, l.stores[ns.Version].Unfence
				}
				if err := do(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				d = l.Apply(t, upgradestate.Confirmed{Version: ns.Version, Kind: k.Kind, To: k.Pending.To})
				again = true
			}
		}
	}
	return d
}

// begun begins a removal without a check, as a process that then died.
func (l lived) begun(t *testing.T, drop bool) deployment.Removal {
	t.Helper()
	r, _, err := l.work.Store.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.At, r.By, r.DropCopies = "2026-01-02T03:04:05Z", "a test", drop
	if r, err = l.work.Store.BeginRemoval(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// refuses fails unless both the check and the work refuse, and leave all collections.
func (l lived) refuses(t *testing.T, want string) {
	t.Helper()
	r, _, err := l.work.Store.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.DropCopies = true
	var refused *removal.RefusedError
	if err := l.work.Check(t.Context(), r); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
		t.Errorf("check: %v, want %q", err, want)
	}
	if _, err := l.work.Do(t.Context(), l.begun(t, true)); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
		t.Errorf("do: %v, want %q", err, want)
	}
	for _, ns := range r.Record.Namespaces {
		for _, k := range ns.Kinds {
			if _, err := l.stores[ns.Version].Locate(t.Context(), k.ID); err != nil {
				t.Errorf("%s of %s: %v", k.Kind, ns.Version, err)
			}
		}
	}
}

// TestOldRecord: etcd was lost, recover made another one the one for the databases, and the deployment
// has switched since. The record in the old etcd takes the live version for a copy.
func TestOldRecord(t *testing.T) {
	t.Parallel()
	l := newLived(t, "v1", "v2")
	kv, err := l.Coord.Get(t.Context(), deploymenttest.Key("record"))
	if err != nil {
		t.Fatal(err)
	}
	markers := map[string]record.Marker{"v1": l.stores["v1"], "v2": l.stores["v2"]}
	if err := identity.Finalize(t.Context(), l.to(t, "v2"), markers); err != nil {
		t.Fatal(err)
	}
	old := deploymenttest.New(t)
	deploymenttest.Put(t, old.Coord, deploymenttest.Key("record"), string(kv.Value))
	l.work.Store = deployment.New(old.Coord, deploymenttest.Name, deployment.Config{})
	l.refuses(t, "the deployment is older than it")
}

// TestUsedBefore: after two switches, the first version is no copy, although the latest switch has no
// part in it.
func TestUsedBefore(t *testing.T) {
	t.Parallel()
	l := newLived(t, "v1", "v2", "v3")
	l.to(t, "v2")
	d := l.to(t, "v3")
	v2, _ := d.Namespace("v2")
	l.Apply(t, upgradestate.Complete{Version: "v2"})
	if err := l.stores["v2"].Drop(t.Context(), record.Token{Kind: "packages", Name: v2.Kinds[0].Physical, ID: v2.Kinds[0].ID}); err != nil {
		t.Fatal(err)
	}
	d = l.Apply(t, upgradestate.Dropped{Version: "v2"})
	markers := map[string]record.Marker{"v1": l.stores["v1"], "v3": l.stores["v3"]}
	if err := identity.Finalize(t.Context(), d, markers); err != nil {
		t.Fatal(err)
	}
	l.refuses(t, "kind packages of v1 has the fence packages.n")
}

// TestWrongDatabase: an empty database in place of the deployment's looks like one that is done only
// once the removal has begun there.
func TestWrongDatabase(t *testing.T) {
	t.Parallel()
	l := newLived(t, "v1", "v2")
	right := l.work.Databases["v2"]
	l.work.Databases["v2"] = database{l.cluster.Open("typo")}
	l.refuses(t, "the database of v2 is empty, or it is not the one that the deployment uses")
	// The same after the removal has begun to act elsewhere.
	r, _, err := l.work.Store.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Acting = true
	if _, err := l.work.Do(t.Context(), r); err == nil || !strings.Contains(err.Error(), "the database of v2 is empty") {
		t.Errorf("v2 was skipped: %v", err)
	}
	l.work.Databases["v2"] = right
	if r, _, err = l.work.Store.Removal(t.Context()); err != nil || len(r.Entered) != 1 {
		t.Fatalf("entered %v, %v", r.Entered, err)
	}
	if _, err := l.work.Do(t.Context(), r); err != nil {
		t.Error(err)
	}
	for version, s := range l.stores {
		if claims, err := s.Claims(t.Context()); err != nil || len(claims) > 0 {
			t.Errorf("%s keeps %v, %v", version, claims, err)
		}
	}
}

// TestClaimsWithoutRecord: a controller died after it had claimed collections, and before the record had
// them. Claims that nobody removes would keep a new deployment from beginning.
func TestClaimsWithoutRecord(t *testing.T) {
	t.Parallel()
	l := newLived(t, "v1")
	s := memstore.NewCluster(memstore.Options{}).Open("v2")
	if _, err := s.Identify(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := l.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.Take(t.Context(), d, "v2", s, []upgradestate.Kind{provisioned(t, s)}, nil); err != nil {
		t.Fatal(err)
	}
	l.work.Databases["v2"] = database{s}
	l.refuses(t, "kind packages in the database of v2 belongs to")
}

// halting is a database in which another remover finishes before the n-th kind is forgotten.
type halting struct {
	removal.Database
	other func()
}

func (h halting) Drop(ctx context.Context, tok record.Token) error {
	err := h.Database.Drop(ctx, tok)
	h.other()
	return err
}

// TestTwoRemovers: a command that was suspended does not go on once another one has ended the removal.
func TestTwoRemovers(t *testing.T) {
	t.Parallel()
	l := newLived(t, "v1", "v2")
	slow := l.work
	slow.Databases = map[string]removal.Database{"v1": l.work.Databases["v1"]}
	slow.Databases["v2"] = halting{l.work.Databases["v2"], func() {
		r, _, err := l.work.Store.Removal(t.Context())
		if err == nil {
			_, err = l.work.Do(t.Context(), r)
		}
		if err != nil {
			t.Errorf("the other one: %v", err)
		}
	}}
	if _, err := slow.Do(t.Context(), l.begun(t, true)); err == nil || !strings.Contains(err.Error(), "somebody else continues or has ended this removal") {
		t.Errorf("the slow one: %v", err)
	}
}

// TestUnknownLostVersion: a version that does not exist is no lost one, also while a removal goes on.
func TestUnknownLostVersion(t *testing.T) {
	t.Parallel()
	l := newLived(t, "v1")
	r := l.begun(t, false)
	r.Acting = true
	l.work.Lost = []string{"v9"}
	if _, _, err := l.work.Effects(t.Context(), r); err == nil || !strings.Contains(err.Error(), `--lost "v9": the deployment has no such version`) {
		t.Errorf("effects: %v", err)
	}
}
