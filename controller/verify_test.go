package controller

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/collections"
	"dbcontroller.dev/coord/memcoord"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/memstore"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// TestVerifyBeforeTheCopy: an empty target is no difference while nobody has copied.
func TestVerifyBeforeTheCopy(t *testing.T) {
	t.Parallel()
	w := newCopyWorld(t)
	if _, err := w.app.Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nothing was brought from v1 to v2 yet") {
		t.Errorf("got %v", err)
	}
	w.app.cfg.Copy.Auto = true
	if _, err := w.app.Verify(t.Context(), nil); err != nil {
		t.Errorf("with copy.auto: %v", err)
	}
	lease, err := w.coord.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(state string) {
		t.Helper()
		p := syncer.Progress{Shard: 1, Owner: "c", State: state, Copied: 3, Total: 10}
		if err := w.app.deployment.PublishProgress(t.Context(), "c", []syncer.Progress{p}, lease.ID()); err != nil {
			t.Fatal(err)
		}
	}
	publish(syncer.StateCopying)
	if _, err := w.app.Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "1 shards still copy to v2 (3 of about 10 records)") {
		t.Errorf("in the middle of the copy: %v", err)
	}
	publish("following")
	if _, err := w.app.Verify(t.Context(), nil); err != nil {
		t.Errorf("after the copy: %v", err)
	}
}

// copyWorld is an application's collection in v1, and nothing in v2.
type copyWorld struct {
	app   *App
	coord *memcoord.Store
}

func newCopyWorld(t *testing.T) copyWorld {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
	kinds := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "things"}}}}
	registry := transform.NewRegistry("shop")
	check(registry.Add("v1", "v2", transform.Spec{Name: "things", Revision: "1", Up: keep, Down: keep, Old: kinds, New: kinds}))
	w := copyWorld{coord: memcoord.New()}
	w.app = &App{
		registry: registry, namespaces: map[string]record.Namespace{},
		cfg:        Settings{Databases: []Database{{Version: "v1", APIVersion: "v1"}, {Version: "v2", APIVersion: "v2"}}},
		deployment: deployment.New(w.coord, "services/shop/deployments/d", deployment.Config{}),
	}
	w.app.collections = collections.New(collections.Parts{
		Deployments: w.app.deployment, Registry: registry, Log: zap.NewNop(),
		Database: func(version string) collections.Database { return w.app.namespaces[version] },
	})
	dir, err := registry.Direction("v1", "v2")
	check(err)
	_, err = w.app.deployment.Create(t.Context(), "v1", 4)
	check(err)
	for v, specs := range map[string][]record.KindSpec{"v1": dir.SourceKinds(), "v2": dir.TargetKinds()} {
		d, err := w.app.deployment.Get(t.Context())
		check(err)
		w.app.namespaces[v] = memstore.New()
		ns, err := syncer.Provision(t.Context(), w.app.namespaces[v], d, v, "mem:"+v, specs, func(string) record.FenceClass { return "" })
		check(err)
		_, err = w.app.deployment.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns})
		check(err)
	}
	_, err = w.app.deployment.Apply(t.Context(), upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: dir.Hash()}})
	check(err)
	return w
}
