package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TestPoison: records that cannot be transformed, before the copy and during it, by an
// error and by a panic, of all shards and at two controllers. They are listed by name and
// block the switch, until each is written anew, deleted or waived. A comparison tells those that
// were waived from what differs, before the switch and from its first moment on.
func TestPoison(t *testing.T) {
	eachSeed(t, 8, poison)
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

// TestWaivedBeyondTheList: more of a kind is parked in a shard than is listed, and the kind is
// waived. The switch begins, and a comparison tells what was left behind from what differs.
func TestWaivedBeyondTheList(t *testing.T) {
	eachSeed(t, 1, waivedBeyondTheList)
}

func waivedBeyondTheList(t *testing.T, _ uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	a, pa := s.server(ctx, "server-a", nil)
	for i := range 20 {
		request(t, a, http.MethodPut, fmt.Sprintf("good-%d", i), fmt.Sprintf("?n=%d&parts=1", i))
	}
	pass(time.Second)
	c1 := s.controller(ctx, "controller-1", nil)
	s.begin(ctx)
	d, err := s.admin.Get(ctx)
	s.check(err)
	const full = 3 // the shard whose list has room for nothing more
	s.check(s.admin.Park(ctx, syncer.Parked{
		Direction: deployment.Directions(d)[0], Shard: full, Kind: "items1", Key: "full", Group: "ZnVsbA==",
		Error: strings.Repeat("x", deployment.MaxParkedBytes-400), Waived: true,
	}))
	const bad = 6
	for i, n := 0, 0; n < bad; i++ {
		name := fmt.Sprintf("bad-%d", i)
		if shards.Of(string(record.StringKey(name)), d.RingSize) == full {
			request(t, a, http.MethodPut, name, "?n=-1&parts=1")
			n++
		}
	}
	pass(4 * time.Second)
	list, err := s.admin.ParkedNow(ctx)
	s.check(err)
	if len(list) != 2 || !slices.ContainsFunc(list, deployment.IsOverflow) {
		t.Fatalf("%d entries are parked, want the one that fills the list, and the one for the others", len(list))
	}
	_, err = s.admin.WaiveKind(ctx, "items1")
	s.check(err)
	compare := func(when string) {
		t.Helper()
		if rep, err := c1.app.Verify(ctx, nil); err != nil || rep.Mismatched != 0 || rep.Waived != bad {
			t.Errorf("%s the comparison says %+v, %v; want that %d were waived", when, rep, err, bad)
		}
	}
	s.await(ctx, "the flip", active("v2"))
	compare("at the flip")
	pass(5 * time.Second)
	compare("later")
	cancel()
	for _, p := range []*process{pa, c1} {
		p.kill()
	}
}
