package upgradestate_test

import (
	"errors"
	"fmt"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestBlockersOfTheRecord: each reason that the record holds has its code and its place.
func TestBlockersOfTheRecord(t *testing.T) {
	base := func() us.Deployment {
		return us.Deployment{
			CurrentVersion: "v1", Epoch: 1, RingSize: 1, Upgrade: &us.Upgrade{TargetVersion: "v2"},
			Namespaces: []us.Namespace{{Version: "v1", Kinds: []us.Kind{{Kind: "orders"}}}, {Version: "v2", Kinds: []us.Kind{{Kind: "orders"}}}},
		}
	}
	for code, tc := range map[us.BlockCode]struct {
		put   func(*us.Deployment)
		place us.BlockPlace
	}{
		us.BlockDifferent: {func(d *us.Deployment) { d.Different = &us.Different{Version: "v2", Epoch: 1, Count: 1} }, us.BlockPlace{Version: "v2"}},
		us.BlockPaused:    {func(d *us.Deployment) { d.Pace.Paused = true }, us.BlockPlace{}},
		us.BlockHeld:      {func(d *us.Deployment) { d.Upgrade.Policy.Hold = true }, us.BlockPlace{}},
		us.BlockUpdate:    {func(d *us.Deployment) { d.Update = &us.Update{Name: "u", Version: "v1", Kind: "orders"} }, us.BlockPlace{Version: "v1", Kind: "orders"}},
		us.BlockRestored:  {func(d *us.Deployment) { d.Restored = []us.Restored{{Version: "v1", What: "older"}} }, us.BlockPlace{Version: "v1"}},
		us.BlockPending:   {func(d *us.Deployment) { d.Namespaces[1].Kinds[0].Pending = &us.Pending{} }, us.BlockPlace{Version: "v2", Kind: "orders"}},
	} {
		d := base()
		if all := us.SwitchBlockers(d); len(all) > 0 {
			t.Fatalf("nothing keeps it: %v", all)
		}
		tc.put(&d)
		all := us.SwitchBlockers(d)
		if len(all) != 1 || all[0].Code != code || !all[0].Place.Equal(tc.place) || all[0].Text == "" || all[0].Resolve() == "" {
			t.Errorf("%s: %+v", code, all)
		}
	}
}

// TestBlockedPlaces: an outer place has what the inner one lacks, and the outer code counts.
func TestBlockedPlaces(t *testing.T) {
	inner := us.Blocked(us.BlockIndexes, us.BlockPlace{Version: "v2", Kind: "orders"}, errors.New("missing"))
	outer := us.Blocked(us.BlockPrepare, us.BlockPlace{Version: "v3", Controller: "c"}, fmt.Errorf("look: %w", inner))
	got := us.BlockerOf(us.BlockStep, outer)
	want := us.Blocker{Code: us.BlockPrepare, Text: "look: missing", Place: us.BlockPlace{Version: "v2", Kind: "orders", Controller: "c"}}
	if !got.Equal(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if us.Blocked(us.BlockStep, us.BlockPlace{}, nil) != nil {
		t.Error("no error is a reason")
	}
	if got := us.BlockerOf(us.BlockStep, errors.New("x")); got.Code != us.BlockStep {
		t.Errorf("%+v", got)
	}
}

// TestSwitchBlockersAreAllReported: a second reason is reported next to the first, and each has
// a code of the registry with the act that resolves it.
func TestSwitchBlockersAreAllReported(t *testing.T) {
	d := us.Deployment{Upgrade: &us.Upgrade{Policy: us.Policy{Hold: true}}, Pace: us.Pace{Paused: true}, Update: &us.Update{Name: "u"}}
	got := us.SwitchBlockers(d)
	want := []us.BlockCode{us.BlockPaused, us.BlockHeld, us.BlockUpdate}
	if len(got) != len(want) {
		t.Fatalf("reasons %v, want %v", got, want)
	}
	for i, b := range got {
		if b.Code != want[i] || b.Resolve() == "" || b.Text == "" {
			t.Errorf("reason %d: %+v resolved by %q, want %s", i, b, b.Resolve(), want[i])
		}
	}
}
