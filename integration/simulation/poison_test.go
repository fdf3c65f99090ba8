package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"dbcontroller.dev/hooks"
	"dbcontroller.dev/upgradestate"
)

// TestPoison: records that cannot be transformed, before the copy and during it, by an
// error and by a panic, of all shards and at two controllers. They are listed by name and
// block the switch, until each is written anew, deleted or waived. A comparison tells those that
// were waived from what differs, before the switch and from its first moment on.
func TestPoison(t *testing.T) {
	eachSeed(t, 20, poison)
}

func poison(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.maxRate = 60
	told := &endpoint{}
	s.hooks = []hooks.Hook{told.hook("pager", hooks.Parked, hooks.Switched)}
	rng := rand.New(rand.NewPCG(seed, 9))
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 2, 20, 100*time.Millisecond)
	const bad = 12
	name := func(i int) string { return fmt.Sprintf("bad-%d", i) }
	n := func(i int) int { return []int{-1, panicN}[i%2] }
	for i := range bad / 2 {
		request(t, a, http.MethodPut, name(i), fmt.Sprintf("?n=%d&parts=1", n(i)))
	}
	pass(time.Second)
	c1 := s.controller(ctx, "controller-1", nil)
	pass(time.Duration(rng.IntN(500)) * time.Millisecond)
	c2 := s.controller(ctx, "controller-2", nil)
	s.begin(ctx)
	for i := bad / 2; i < bad; i++ {
		pass(time.Duration(rng.IntN(300)) * time.Millisecond)
		request(t, a, http.MethodPut, name(i), fmt.Sprintf("?n=%d&parts=1", n(i)))
	}
	pass(8 * time.Second)
	list, err := s.admin.ParkedNow(ctx)
	s.check(err)
	if len(list) != bad {
		t.Errorf("%d groups are parked, want %d: %+v", len(list), bad, list)
	}
	for _, p := range list {
		if p.Kind != "items1" || p.Error == "" || p.Waived {
			t.Errorf("parked: %+v", p)
		}
	}
	pass(15 * time.Second)
	d, err := s.admin.Get(ctx)
	s.check(err)
	if d.CurrentVersion != "v1" || d.Upgrade == nil || d.Upgrade.State != upgradestate.InitialSyncing {
		t.Fatalf("%s is active, the upgrade is %+v", d.CurrentVersion, d.Upgrade)
	}
	// In any order: a third is waived, the others are fixed.
	for _, i := range rng.Perm(bad) {
		pass(time.Duration(rng.IntN(700)) * time.Millisecond)
		if d, _ := s.admin.Get(ctx); d.CurrentVersion != "v1" {
			t.Error("the switch did not wait for all of them")
		}
		switch i % 3 {
		case 0:
			_, err := s.admin.Waive(ctx, "items1", name(i))
			s.check(err)
		case 1:
			request(t, a, http.MethodPut, name(i), fmt.Sprintf("?n=%d&parts=3", i))
			tr.items.Put(name(i), oldItem{name(i), int64(i), 3})
		case 2:
			request(t, a, http.MethodDelete, name(i), "")
		}
	}
	s.await(ctx, "the flip", active("v2"))
	compare := func(when string) {
		t.Helper()
		if rep, err := c1.app.Verify(ctx, nil); err != nil || rep.Mismatched != 0 || rep.Waived != 4 || len(rep.WaivedExamples) != 4 {
			t.Errorf("%s the comparison says %+v, %v; want that 4 were waived", when, rep, err)
		}
	}
	compare("at the flip")
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	compare("later")
	if got, _ := told.events(t); !slices.Equal(got, []hooks.Type{hooks.Parked, hooks.Switched}) || told.got[0].Parked < 1 || told.got[0].Parked > bad {
		t.Errorf("a hook was told of %v: %+v", got, told.got)
	}
	cancel()
	for _, p := range []*process{pa, c1, c2} {
		p.kill()
	}
}
