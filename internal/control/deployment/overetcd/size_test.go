package overetcd_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// weighed keeps the largest value and commit that go through it.
type weighed struct {
	coord.Store
	t *testing.T
}

func (w *weighed) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if n := len(conditions) + len(ops); n > coord.MaxOps {
		w.t.Errorf("a commit has %d conditions and operations", n)
	}
	return w.Store.Commit(ctx, conditions, ops)
}

// largest looks which values are stored below a prefix.
func (w *weighed) largest(prefix string) (most, count int) {
	w.t.Helper()
	kvs, _, err := w.List(w.t.Context(), prefix)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kv := range kvs {
		most = max(most, len(kv.Value))
	}
	return most, len(kvs)
}

// TestValuesAreBounded: with 1,024 shards and 1,000 kinds every value that is kept in etcd
// has a bound far below what etcd takes in one request, and comes back as it was.
func TestValuesAreBounded(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	const ring, kinds, ranges = 1024, 1000, 16 // as an engine cuts that many kinds
	etcd, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	}()
	c, err := etcdcoord.Open(t.Context(), etcdcoord.Config{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := &weighed{Store: c, t: t}
	s := deployment.New(w, name, deployment.Config{})

	// The record, in the middle of a switch of all kinds.
	if _, err := s.Create(t.Context(), "v1", ring); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2"} {
		ns := upgradestate.Namespace{Version: version, Location: "mongodb://db:27017/dbc_" + version}
		for i := range kinds {
			kind := fmt.Sprintf("a_collection_with_a_rather_long_name_%04d", i)
			ns.Kinds = append(ns.Kinds, upgradestate.Kind{Kind: kind, Physical: kind + ".n1", ID: fmt.Sprintf("%s%030d", version, i)})
		}
		if _, err := s.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(ev upgradestate.Event) upgradestate.Deployment {
		t.Helper()
		d, err := s.Apply(t.Context(), ev)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h1"}})
	d := apply(upgradestate.Begin{ID: "u1", TargetVersion: "v2"})
	all := make([]int, ring)
	for n := range all {
		all[n] = n
	}
	d = apply(upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: d.Upgrade.Attempt, Shards: all})
	if again, err := s.Get(t.Context()); err != nil || !reflect.DeepEqual(d, again) {
		t.Errorf("the record does not come back: %v\n%s", err, cmp.Diff(d, again))
	}
	within := func(what, prefix string, bound int) (count int) {
		t.Helper()
		most, count := w.largest(prefix)
		t.Logf("%s: %d values, the largest has %d bytes", what, count, most)
		if most > bound || count == 0 {
			t.Errorf("%s: %d values, the largest has %d bytes, want %d at most", what, count, most, bound)
		}
		return count
	}
	within("record", s.Root()+"/record", 256<<10)

	// A plan, made by several controllers at a time.
	dir := syncer.KeyOf(1, "v1", "v2", "h1", 0)
	plan := func(who int) syncer.Plan {
		p := syncer.Plan{Dealt: true, Ranges: map[string][]record.Range{}, Totals: map[string]int64{}}
		p.Start.Token = []byte(strings.Repeat("t", 200))
		for i := range kinds {
			kind := fmt.Sprintf("a_collection_with_a_rather_long_name_%04d", i)
			p.Totals[kind] = int64(who)
			for n := range ranges {
				p.Ranges[kind] = append(p.Ranges[kind], record.Range{From: cursor(who, n), To: cursor(who, n+1)})
			}
		}
		return p
	}
	stand := make([]syncer.Plan, 3)
	var g errgroup.Group
	for who := range stand {
		g.Go(func() error {
			var err error
			stand[who], err = s.CreatePlan(t.Context(), dir, plan(who))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	kept, found, err := s.LoadPlan(t.Context(), dir)
	if err != nil || !found || len(kept.Ranges) != kinds || !kept.Dealt {
		t.Fatalf("the plan does not come back: %v, %v, %d kinds", found, err, len(kept.Ranges))
	}
	for who := range stand {
		if !reflect.DeepEqual(stand[who], kept) {
			t.Errorf("controller %d goes by another plan", who)
		}
	}
	if !reflect.DeepEqual(kept, plan(int(kept.Totals["a_collection_with_a_rather_long_name_0000"]))) {
		t.Error("the plan is a mixture")
	}
	if n := within("plan", s.Root()+"/plans/", 300<<10); n < 3 {
		t.Errorf("it is not in parts: %d values", n)
	}

	// Checkpoints of all shards, with a fence seen of each kind.
	cs := map[int]syncer.Checkpoint{}
	markers := map[string]string{}
	for kind := range kept.Ranges {
		markers[kind] = kind + ".n2"
	}
	for n := range 64 {
		cs[n] = syncer.Checkpoint{
			Position: kept.Start, Markers: markers, DoneBits: make([]byte, ranges*kinds/ring/8+1),
			Copied: map[string]record.Range{"a/1": {From: cursor(0, n)}},
		}
	}
	if err := s.SaveCheckpoints(t.Context(), dir, cs); err != nil {
		t.Fatal(err)
	}
	within("checkpoints", s.Root()+"/checkpoints/", 128<<10)
	if got, _, err := s.LoadCheckpoint(t.Context(), dir, 63); err != nil || !reflect.DeepEqual(got, cs[63]) {
		t.Errorf("a checkpoint does not come back: %v", err)
	}

	// What a direction has left is forgotten as a whole.
	if err := s.ForgetBefore(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, left := w.largest(s.Root() + "/plans/"); left != 0 {
		t.Errorf("%d values of plans are left", left)
	}
}

func cursor(who, n int) record.Cursor {
	return record.Cursor(fmt.Sprintf("%d-%040d", who, n))
}
