package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestWholeOrders is about a database whose changes come one by one, as those of a
// transaction over several shards may.
func TestWholeOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory()
		db["v1"] = memstore.NewCluster(memstore.Options{Changes: 1, Torn: true}).Open("old")
		newSystemOf(t.Context(), t, db, ordersRegistry(), ordersStack).wholeOrders(t.Context())
	})
}

// wholeOrders: clients write orders in transactions while two controllers follow them, each
// of which has some records of every order. No order is incomplete in the database, and none
// is ever shown to be.
func (s *system) wholeOrders(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, ps := s.server(ctx, "server", nil)
	var clerks []*clerk
	for i := range 3 {
		clerks = append(clerks, &clerk{t: s.t, server: server, id: i, rng: rand.New(rand.NewPCG(uint64(i), 1)), orders: map[string]int{}})
	}
	each(clerks, 5)
	running := []*process{ps}
	for i := range 2 {
		running = append(running, s.controller(ctx, fmt.Sprintf("controller-%d", i), nil))
	}
	_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "upgrade-1", TargetVersion: "v2", Policy: upgradestate.Policy{Hold: true}})
	s.check(err)
	s.await(ctx, "ready", upgradestate.AllReady)
	report := s.lookForParked(ctx)
	each(clerks, 30)
	_, err = s.admin.Apply(ctx, upgradestate.AskSwitch{ID: "upgrade-1"})
	s.check(err)
	s.await(ctx, "the flip", active("v2"))
	report()
	s.whole(ctx, clerks)
	cancel()
	for _, p := range running {
		p.kill()
	}
}

// lookForParked looks all the time, until report says what it saw.
func (s *system) lookForParked(ctx context.Context) (report func()) {
	looking, stop := context.WithCancel(ctx)
	looks, seen := 0, map[string]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; looking.Err() == nil; pass(20 * time.Millisecond) {
			list, err := s.admin.ParkedNow(looking)
			if err != nil {
				continue
			}
			looks++
			for _, p := range list {
				seen[fmt.Sprintf("%s/%s: %s", p.Kind, p.Key, p.Error)] = true
			}
		}
	})
	return func() {
		s.t.Helper()
		stop()
		wg.Wait()
		if len(seen) > 0 || looks < 10 {
			s.t.Errorf("in %d looks %d records were shown as parked: %.300v", looks, len(seen), seen)
		}
	}
}

// whole compares v2 with what the clerks have written.
func (s *system) whole(ctx context.Context, clerks []*clerk) {
	s.t.Helper()
	want := map[string]string{}
	for _, c := range clerks {
		for name, lines := range c.orders {
			want["orders2/"+name] = string(must(bson.Marshal(order{ID: name, Of: name, Lines: lines})))
			for i := range lines {
				id := fmt.Sprintf("%s/%d", name, i)
				want["lines2/"+id] = string(must(bson.Marshal(order{ID: id, Of: name})))
			}
		}
	}
	all := len(want)
	d, err := s.admin.Get(ctx)
	s.check(err)
	ns, _ := d.Namespace("v2")
	for _, k := range ns.Kinds {
		if !slices.Contains([]string{"orders2", "lines2"}, k.Kind) {
			continue
		}
		page, err := s.db["v2"].Scan(ctx, record.ScanRequest{Token: record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}, Limit: 1 << 20, NotBefore: s.now(ctx, "v2")})
		s.check(err)
		for _, r := range page.Records {
			name, _ := r.Key.Name()
			key := k.Kind + "/" + name
			if want[key] != string(r.Doc) {
				s.t.Errorf("%s is %v, want %v", key, r.Doc, bson.Raw(want[key]))
			}
			delete(want, key)
		}
	}
	if len(want) > 0 || all == 0 {
		s.t.Errorf("%d of %d records are missing", len(want), all)
	}
}
