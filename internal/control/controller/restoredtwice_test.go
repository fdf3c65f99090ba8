package controller

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	us "dbcontroller.dev/upgradestate"
)

// TestRestoreFoundTwice: one controller has answered the restore of a database and has not accepted its
// beat yet. Another one, which finds the restore then, begins nothing anew.
func TestRestoreFoundTwice(t *testing.T) {
	t.Parallel()
	for _, restored := range []string{"v1", "v2"} {
		t.Run(restored, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			w := newRestores(t, restored)
			store, namespaces, clusters, d := w.store, w.namespaces, w.clusters, get(ctx, t, w.store)
			a, b := w.controller(namespaces), w.controller(namespaces)
			night := w.restore(t, a)

			db := namespaces[restored]
			pulse := a.pulses.get(a, restored, db)
			var found *identity.RestoredError
			if err := pulse.Look(ctx); !errors.As(err, &found) {
				t.Fatalf("the first controller finds %v", err)
			}
			must(t, a.restored(ctx, restored, db, found))
			answered := get(ctx, t, store)
			if answered.Epoch == d.Epoch && images(answered) == images(d) {
				t.Fatal("the first controller began nothing")
			}
			var again *identity.RestoredError
			if err := b.lives(ctx, restored); !errors.As(err, &again) || again.Finding != found.Finding {
				t.Fatalf("the second controller finds %v, want %v", err, found)
			}
			if now := get(ctx, t, store); now.Epoch != answered.Epoch || images(now) != images(answered) {
				t.Errorf("the second controller began epoch %d and %+v, after %d and %+v", now.Epoch, images(now), answered.Epoch, images(answered))
			}
			must(t, pulse.Accept(ctx))
			for _, c := range []*beats{a, b} {
				must(t, c.lives(ctx, restored))
			}

			// The same backup once more is another restore.
			clusters[restored].Restore(night, func() {})
			if err := b.lives(ctx, restored); !errors.As(err, &again) || again.Finding == found.Finding {
				t.Fatalf("after the next restore: %v", err)
			}
			if now := get(ctx, t, store); now.Epoch == answered.Epoch && images(now) == images(answered) {
				t.Error("the next restore began nothing")
			}
		})
	}
}

// restores is a deployment whose database of one version is restored: the current v1, or v2, which
// follows it.
type restores struct {
	restored   string
	store      *deployment.Store
	namespaces map[string]record.Namespace
	clusters   map[string]*memstore.Cluster
}

func newRestores(t *testing.T, restored string) *restores {
	t.Helper()
	ctx := t.Context()
	w := &restores{
		restored, deployment.New(memcoord.New(), "services/a/deployments/x", deployment.Config{}),
		map[string]record.Namespace{}, map[string]*memstore.Cluster{},
	}
	d, err := w.store.Create(ctx, "v1", 2)
	must(t, err)
	markers := map[string]record.Marker{}
	for _, v := range []string{"v1", "v2"} {
		if v > restored {
			break // no version follows v1
		}
		w.clusters[v] = memstore.NewCluster(memstore.Options{})
		db := w.clusters[v].Open(v)
		w.namespaces[v], markers[v] = db, db
		id, err := identity.Enter(ctx, d, v, db, []string{"accounts"})
		must(t, err)
		ns, err := syncer.Provision(ctx, db, d, v, "mem:"+v, []record.KindSpec{{Name: "accounts"}}, func(string) record.FenceClass { return "" })
		must(t, err)
		must(t, identity.Take(ctx, d, v, db, ns.Kinds, nil))
		ns.Identity = id
		d, err = w.store.Apply(ctx, us.AnnounceNamespace{Namespace: ns})
		must(t, err)
	}
	if restored == "v2" {
		d, err = w.store.Apply(ctx, us.AnnounceAvailable{Available: us.Available{TargetVersion: "v2", TransformHash: "h", Precopied: true}})
		must(t, err)
	}
	must(t, identity.Keeper{Deployments: w.store, Databases: markers}.Keep(ctx, d))
	return w
}

// controller returns the beats of one more controller.
func (w *restores) controller(namespaces map[string]record.Namespace) *beats {
	return &beats{
		opts: &Options{}, deployment: w.store, connections: &connections{namespaces: namespaces}, log: zap.NewNop(),
		pulses: pulses{dealing: make(chan struct{}, 1)},
	}
}

// restore restores the database from a backup, which it returns. A controller has counted since.
func (w *restores) restore(t *testing.T, b *beats) (night *memstore.Backup) {
	t.Helper()
	must(t, b.lives(t.Context(), w.restored))
	night = w.clusters[w.restored].Backup(func() {})
	must(t, b.lives(t.Context(), w.restored))
	w.clusters[w.restored].Restore(night, func() {})
	return night
}

// confirm does the renames that the record announces, as the driver does.
func (w *restores) confirm(t *testing.T) {
	t.Helper()
	ns, _ := get(t.Context(), t, w.store).Namespace(w.restored)
	for _, k := range ns.Kinds {
		must(t, w.namespaces[w.restored].Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: syncer.TokenOf(k), To: k.Pending.To}))
		_, err := w.store.Apply(t.Context(), us.Confirmed{Version: ns.Version, Kind: k.Kind, To: k.Pending.To})
		must(t, err)
	}
}

func images(d us.Deployment) us.Images {
	ns, _ := d.Namespace("v2")
	return ns.Images
}

func get(ctx context.Context, t *testing.T, store *deployment.Store) us.Deployment {
	t.Helper()
	d, err := store.Get(ctx)
	must(t, err)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
