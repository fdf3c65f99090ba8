package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// What a controller does besides the switch: it proves the rollback before it, keeps TTL
// indexes where they belong, and retires what nobody needs any longer.

// TestRetirement: v1 is completed, and the controller killed that comes first to a moment of
// it. Its collections are set aside whole, and dropped when their time is over,
// with everything that says whose they were; v2 is not touched.
func TestRetirement(t *testing.T) {
	for i, m := range []moment{{"fence v1", 2}, {"fenced v1", 2}, {"drop v1", 0}, {"dropped v1", 0}} {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { retireUnderTraffic(t, uint64(i), m) })
		})
	}
}

func retireUnderTraffic(t *testing.T, seed uint64, m moment) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 3, 20, 20*time.Millisecond)
	tp, died := mortal(m)
	running := s.started(ctx, "controller", 2, tp)
	pass(time.Second)
	s.begin(ctx)
	s.await(ctx, "the flip", active("v2"))
	pass(time.Second)
	stop()
	pass(2 * time.Second) // v1 is in sync
	before := s.contents(ctx, "v1")
	const kept = 20 * time.Second
	_, err := s.admin.Apply(ctx, upgradestate.Complete{Version: "v1", Until: time.Now().Add(kept).UTC().Format(time.RFC3339)})
	s.check(err)
	if m.what == "fence v1" || m.what == "fenced v1" {
		s.replace(ctx, running, died, tp)
	}
	d := s.await(ctx, "v1 set aside", func(d upgradestate.Deployment) bool { return d.Retire == nil && len(d.Kept) == 1 })
	for _, k := range d.Kept[0].Namespace.Kinds {
		aside := upgradestate.RetiredName("v1", k)
		page, err := s.db["v1"].Scan(ctx, record.ScanRequest{
			Token: record.Token{Kind: k.Kind, Name: aside, ID: k.ID}, Limit: 1 << 20, NotBefore: s.now(ctx, "v1"),
		})
		s.check(err)
		if len(page.Records) != len(before) || len(before) == 0 {
			t.Errorf("%d records are set aside, there were %d", len(page.Records), len(before))
		}
	}
	stop = drive(ctx, tr, seed+100, 3, 20, 20*time.Millisecond)
	if m.what == "drop v1" || m.what == "dropped v1" {
		s.replace(ctx, running, died, tp)
	}
	s.await(ctx, "the end of v1", func(d upgradestate.Deployment) bool { return len(d.Kept) == 0 })
	if left := s.db["v1"].(*memstore.Store).Names(); len(left) > 0 {
		t.Errorf("v1 still has %v", left)
	}
	if claims, err := s.db["v1"].Claims(ctx); err != nil || len(claims) > 0 {
		t.Errorf("v1 is still claimed: %v, %v", claims, err)
	}
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	cancel()
	for _, p := range running {
		p.kill()
	}
	pa.kill()
}

// TestNoReverseSyncHoldsTheSwitch: transformers whose rollback fails hold the switch for as long
// as it is to be kept; nothing of the attempts is left.
func TestNoReverseSyncHoldsTheSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystemOf(ctx, t, memory(), contentRegistry(), contentStack) // which does not go back
		s.quiet()
		a, pa := s.server(ctx, "server-a", nil)
		c := newCrowd(t, a)
		stop := c.drive(ctx, 1, 2, 10, 20*time.Millisecond)
		pass(time.Second)
		stop()
		p := s.controller(ctx, "controller-1", nil)
		s.begin(ctx)
		pass(3 * time.Minute)
		d, err := s.admin.Get(ctx)
		s.check(err)
		if d.CurrentVersion != "v1" || d.Upgrade == nil || d.Upgrade.State != upgradestate.InitialSyncing || d.Upgrade.Failures > 0 {
			t.Errorf("version %s with upgrade %+v, want one that waits", d.CurrentVersion, d.Upgrade)
		}
		p.stop()
		<-p.done
		for v, db := range s.db {
			for _, name := range db.(*memstore.Store).Names() {
				if strings.HasPrefix(name, "dbc_proof_") {
					t.Errorf("%s still has %s", v, name)
				}
			}
		}
		s.oneWay = true // somebody gives the rollback up
		p = s.controller(ctx, "controller-2", nil)
		s.await(ctx, "the flip", active("v2"))
		cancel()
		p.kill()
		pa.kill()
	})
}

// TestExpiryFollowsTheSwitch: a TTL index deletes in the version that is current and nowhere
// else, and nowhere while a switch runs, there and back, whichever controller is killed.
func TestExpiryFollowsTheSwitch(t *testing.T) {
	for _, m := range []moment{{"to HOLD", 0}, {"at HOLD", 0}, {"fenced v1", 0}, {"flip", 0}, {"flipped", 0}} {
		for _, class := range []record.FenceClass{record.FenceValidator, record.FenceView} {
			t.Run(fmt.Sprintf("%s/%s", m, class), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { expire(t, class, m) })
			})
		}
	}
}

func expire(t *testing.T, class record.FenceClass, m moment) {
	const seconds, index = 3600, "at_1"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stores := map[string]*memstore.Store{
		"v1": memstore.NewCluster(memstore.Options{Lag: 3, FixedFence: class}).Open("old"),
		"v2": memstore.NewCluster(memstore.Options{Start: 1 << 20, FixedFence: class}).Open("new"),
	}
	ttl := must(bson.Marshal(bson.D{
		{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "at", Value: int32(1)}}}, {Key: "name", Value: index},
		{Key: "expireAfterSeconds", Value: int32(seconds)},
	}))
	if _, err := stores["v1"].Provision(ctx, record.KindSpec{Name: docs, Fixed: true, Shape: record.Shape{Indexes: []bson.Raw{ttl}}}, docs); err != nil {
		t.Fatal(err)
	}
	for i := range int32(5) {
		if err := stores["v1"].Foreign().Insert(ctx, docs, oldDoc(i, 0)); err != nil {
			t.Fatal(err)
		}
	}
	same := func(shape record.Shape) (record.Shape, error) { return shape, nil }
	s := newSystemOf(ctx, t, map[string]database{"v1": stores["v1"], "v2": stores["v2"]}, fixedRegistry(), nil,
		collections.Carries{{"v1", "v2"}: {docs: {From: docs, Shape: same}}})

	deleting := func() (versions []string) {
		d, err := s.admin.Get(ctx)
		s.check(err)
		for _, v := range []string{"v1", "v2"} {
			ns, _ := d.Namespace(v)
			at, err := s.db[v].Locate(ctx, ns.Kinds[0].ID)
			s.check(err)
			info, err := s.db[v].Describe(ctx, record.KindSpec{Name: docs, Fixed: true}, at)
			s.check(err)
			if record.ExpiryOf(info.Shape)[index] == seconds {
				versions = append(versions, v)
			}
		}
		return versions
	}
	only := func(version string) {
		t.Helper()
		since := time.Now()
		for !slices.Equal(deleting(), []string{version}) {
			if pass(100 * time.Millisecond); time.Since(since) > time.Minute {
				t.Fatalf("it deletes in %v, want in %s alone", deleting(), version)
			}
		}
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	watched := s.admin.Watch(watching)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for d := range watched {
			if u := d.Upgrade; u != nil && u.State == upgradestate.Switching && u.Step != upgradestate.StepNone {
				in := deleting()
				if now, err := s.admin.Get(ctx); len(in) > 0 && err == nil && now.Revision == d.Revision {
					t.Errorf("it deletes in %v during the step %s", in, u.Step)
				}
			}
		}
	})
	tp, died := mortal(m)
	running := s.started(ctx, "controller", 2, tp)
	only("v1")
	s.begin(ctx)
	s.replace(ctx, running, died, tp)
	s.await(ctx, "the flip", active("v2"))
	only("v2")
	for _, to := range []string{"v1", "v2"} {
		pass(time.Second)
		s.switchTo(ctx, to)
		only(to)
	}
	unwatch()
	watcher.Wait()
	cancel()
	for _, p := range running {
		p.kill()
	}
}
