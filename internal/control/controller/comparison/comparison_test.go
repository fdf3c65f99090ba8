package comparison

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// TestVerifyBeforeTheCopy: an empty target is no difference while nobody has copied.
func TestVerifyBeforeTheCopy(t *testing.T) {
	t.Parallel()
	w := newCopyWorld(t)
	if _, err := w.comparison.Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nothing was copied from v1 to v2 yet") {
		t.Errorf("got %v", err)
	}
	*w.auto = true
	if _, err := w.comparison.Verify(t.Context(), nil); err != nil {
		t.Errorf("with copy.auto: %v", err)
	}
	lease, err := w.coord.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(state string) {
		t.Helper()
		p := syncer.Progress{Shard: 1, Owner: "c", State: state, Copied: 3, Total: 10}
		if err := w.comparison.Deployments.PublishProgress(t.Context(), "c", []syncer.Progress{p}, lease.ID()); err != nil {
			t.Fatal(err)
		}
	}
	publish(syncer.StateCopying)
	if _, err := w.comparison.Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "1 shards still copy to v2 (3 of about 10 records)") {
		t.Errorf("in the middle of the copy: %v", err)
	}
	publish("following")
	if _, err := w.comparison.Verify(t.Context(), nil); err != nil {
		t.Errorf("after the copy: %v", err)
	}
}

// TestVerifyComparesShapes: a comparison names an index that the target lacks, though all records are
// equal.
func TestVerifyComparesShapes(t *testing.T) {
	t.Parallel()
	spec := record.KindSpec{Name: "things"}
	raw, err := bson.Marshal(bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "n", Value: int32(1)}}}, {Key: "name", Value: "n_1"}})
	if err != nil {
		t.Fatal(err)
	}
	spec.Shape.Indexes = []bson.Raw{raw}
	w := newCopyWorldOf(t, spec)
	*w.auto = true
	d, err := w.comparison.Deployments.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tok := syncer.Tokens(d, "v2")["things"]
	if err := w.comparison.Namespaces["v2"].BuildIndexes(t.Context(), tok, spec); err != nil {
		t.Fatal(err)
	}
	if rep, err := w.comparison.Verify(t.Context(), nil); err != nil || len(rep.Shapes) > 0 {
		t.Fatalf("with the index: %q, %v", rep.Shapes, err)
	}
	if err := w.comparison.Namespaces["v2"].Reshape(t.Context(), tok, record.KindSpec{Name: "things"}, []string{"n_1"}); err != nil {
		t.Fatal(err)
	}
	rep, err := w.comparison.Verify(t.Context(), nil)
	if err != nil || rep.Mismatched > 0 || len(rep.Shapes) != 1 || !strings.HasSuffix(rep.Shapes[0], "index n_1 is missing") {
		t.Errorf("without the index: %+v, %v", rep, err)
	}
}

// TestVerifyWaitsForItsCollections: right after a switch a controller still makes collections that
// only the way back needs. A comparison waits for them, and fails in words if nobody makes them.
func TestVerifyWaitsForItsCollections(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"made later": true, "never made": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newCopyWorld(t)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				keep := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
				more := transform.NewRegistry("shop")
				for _, kind := range []string{"things", "late"} {
					side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}}
					if err := more.Add("v1", "v2", transform.Spec{Name: kind, Revision: "1", Up: keep, Down: keep, Old: side, New: side}); err != nil {
						t.Fatal(err)
					}
				}
				dir, err := more.Direction("v1", "v2")
				if err != nil {
					t.Fatal(err)
				}
				d, err := w.comparison.Deployments.Get(ctx)
				if err != nil {
					t.Fatal(err)
				}
				var got upgradestate.Deployment
				var failed error
				done := make(chan struct{})
				go func() {
					defer close(done)
					got, failed = w.comparison.provisioned(ctx, d, dir)
				}()
				synctest.Wait()
				select {
				case <-done:
					t.Fatalf("it did not wait: %v", failed)
				default:
				}
				if made {
					ns, err := syncer.Provision(ctx, w.comparison.Namespaces["v2"], d, "v2", "mem:v2", dir.TargetKinds(), func(string) record.FenceClass { return "" })
					if err != nil {
						t.Fatal(err)
					}
					if _, err := w.comparison.Deployments.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
						t.Fatal(err)
					}
				}
				<-done
				ns, _ := got.Namespace("v2")
				_, there := ns.Kind("late")
				if made && (failed != nil || !there) {
					t.Errorf("%v, with the collection: %t", failed, there)
				}
				if !made && (failed == nil || !strings.Contains(failed.Error(), "no collection for late yet")) {
					t.Errorf("got %v", failed)
				}
			})
		})
	}
}

// copyWorld is an application's collection in v1, and nothing in v2.
type copyWorld struct {
	comparison *Comparison
	coord      *memcoord.Store
	auto       *bool // copy.auto
}

func newCopyWorld(t *testing.T) copyWorld {
	t.Helper()
	return newCopyWorldOf(t, record.KindSpec{Name: "things"})
}

func newCopyWorldOf(t *testing.T, kind record.KindSpec) copyWorld {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keep := func(src, _ transform.Group) ([]record.Record, error) { return src.Records, nil }
	kinds := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: kind}}}
	registry := transform.NewRegistry("shop")
	check(registry.Add("v1", "v2", transform.Spec{Name: "things", Revision: "1", Up: keep, Down: keep, Old: kinds, New: kinds}))
	w := copyWorld{coord: memcoord.New(), auto: new(bool)}
	to := func(upgradestate.Deployment) (string, bool) { return "v2", true }
	p := Parts{
		Deployments: deployment.New(w.coord, "services/shop/deployments/d", deployment.Config{}),
		Registry:    registry, Namespaces: map[string]record.Namespace{},
		Target: to, Wants: to, Copies: func(upgradestate.Deployment, string) bool { return *w.auto },
	}
	p.Collections = collections.New(collections.Parts{
		Deployments: p.Deployments, Registry: registry, Log: zap.NewNop(),
		Database: func(version string) collections.Database { return p.Namespaces[version] },
	})
	w.comparison = New(p)
	dir, err := registry.Direction("v1", "v2")
	check(err)
	_, err = w.comparison.Deployments.Create(t.Context(), "v1", 4)
	check(err)
	for v, specs := range map[string][]record.KindSpec{"v1": dir.SourceKinds(), "v2": dir.TargetKinds()} {
		d, err := w.comparison.Deployments.Get(t.Context())
		check(err)
		w.comparison.Namespaces[v] = memstore.New()
		ns, err := syncer.Provision(t.Context(), w.comparison.Namespaces[v], d, v, "mem:"+v, specs, func(string) record.FenceClass { return "" })
		check(err)
		_, err = w.comparison.Deployments.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns})
		check(err)
	}
	_, err = w.comparison.Deployments.Apply(t.Context(), upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: dir.Hash()}})
	check(err)
	return w
}
