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
			store := deployment.New(memcoord.New(), "services/a/deployments/x", deployment.Config{})
			d, err := store.Create(ctx, "v1", 2)
			must(t, err)
			namespaces, markers := map[string]record.Namespace{}, map[string]record.Marker{}
			clusters := map[string]*memstore.Cluster{}
			for _, v := range []string{"v1", "v2"} {
				if v > restored {
					break // no version follows v1
				}
				clusters[v] = memstore.NewCluster(memstore.Options{})
				db := clusters[v].Open(v)
				namespaces[v], markers[v] = db, db
				id, err := identity.Enter(ctx, d, v, db, []string{"accounts"})
				must(t, err)
				ns, err := syncer.Provision(ctx, db, d, v, "mem:"+v, []record.KindSpec{{Name: "accounts"}}, func(string) record.FenceClass { return "" })
				must(t, err)
				must(t, identity.Take(ctx, d, v, db, ns.Kinds, nil))
				ns.Identity = id
				d, err = store.Apply(ctx, us.AnnounceNamespace{Namespace: ns})
				must(t, err)
			}
			if restored == "v2" {
				d, err = store.Apply(ctx, us.AnnounceAvailable{Available: us.Available{TargetVersion: "v2", TransformHash: "h", Precopied: true}})
				must(t, err)
			}
			must(t, identity.Keeper{Deployments: store, Databases: markers}.Keep(ctx, d))
			controller := func() *beats {
				return &beats{
					opts: &Options{}, deployment: store, connections: &connections{namespaces: namespaces}, log: zap.NewNop(),
					pulses: pulses{dealing: make(chan struct{}, 1)},
				}
			}
			a, b := controller(), controller()
			must(t, a.lives(ctx, restored))
			night := clusters[restored].Backup(func() {})
			must(t, a.lives(ctx, restored))
			clusters[restored].Restore(night, func() {})

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
