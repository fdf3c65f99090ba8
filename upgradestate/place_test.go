package upgradestate_test

import (
	"reflect"
	"strings"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

func TestAPIVersion(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"v1": "v1", "v1@b": "v1", "v1@eu-2": "v1", "": ""} {
		if got := us.APIVersion(name); got != want {
			t.Errorf("APIVersion(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestFollowed: of all upgrades that are possible, one is synced to.
func TestFollowed(t *testing.T) {
	t.Parallel()
	list := func(text string) (as []us.Available) {
		for _, v := range strings.Fields(text) {
			name, ahead := strings.CutSuffix(v, "!")
			as = append(as, us.Available{TargetVersion: name, TransformHash: "h-" + name, Precopied: ahead})
		}
		return as
	}
	for _, tc := range []struct {
		name, available string // ! marks what is ahead
		last            us.Switch
		upgrade         string
		want            string
		back            bool
	}{
		{name: "nothing is possible"},
		{name: "nothing is ahead", available: "v3 v4"},
		{name: "ahead", available: "v3! v4", want: "v3"},
		{name: "rollback", available: "v3! v1", last: us.Switch{From: "v1", To: "v2"}, want: "v1", back: true},
		{name: "no rollback", available: "v3!", last: us.Switch{From: "v1", To: "v2"}, want: "v3"},
		{name: "after a snapshot", available: "v3! v1", last: us.Switch{From: "v1", To: "v2", Snapshot: true}, want: "v3"},
		{name: "after an epoch without a switch", available: "v3! v1", last: us.Switch{From: "v1", To: "v2", Outdated: true}, want: "v3"},
		{name: "an upgrade decides", available: "v3! v1 v4", last: us.Switch{From: "v1", To: "v2"}, upgrade: "v4", want: "v4", back: true},
		{name: "one that is not offered any more", available: "v3!", upgrade: "v4", want: "v4"},
	} {
		d := us.New("services/x/deployments/y", "v2", 2)
		d.Available = list(tc.available)
		if tc.last.From != "" {
			d.LastSwitch = &tc.last
		}
		if tc.upgrade != "" {
			d.Upgrade = &us.Upgrade{TargetVersion: tc.upgrade, TransformHash: "h-" + tc.upgrade}
		}
		got, ok := us.Followed(d)
		if got.TargetVersion != tc.want || ok != (tc.want != "") || ok && got.TransformHash != "h-"+tc.want {
			t.Errorf("%s: %+v (%t), want %q", tc.name, got, ok, tc.want)
		}
		if back := us.ReverseSynced(d); back != tc.back {
			t.Errorf("%s: rollback is %t", tc.name, back)
		}
	}
}

// TestAheadIsOne: the mark goes to the version that was announced with it last.
func TestAheadIsOne(t *testing.T) {
	t.Parallel()
	d := us.New("services/x/deployments/y", "v1", 2)
	for _, a := range []us.Available{{TargetVersion: "v2", Precopied: true}, {TargetVersion: "v3"}, {TargetVersion: "v4", Precopied: true}, {TargetVersion: "v3", TransformHash: "h"}} {
		step(t, &d, us.AnnounceAvailable{Available: a})
	}
	want := []us.Available{{TargetVersion: "v2"}, {TargetVersion: "v3", TransformHash: "h"}, {TargetVersion: "v4", Precopied: true}}
	if !reflect.DeepEqual(d.Available, want) {
		t.Errorf("%+v, want %+v", d.Available, want)
	}
}

// TestWithdrawAvailable: what is withdrawn cannot be begun; what runs, goes on.
func TestWithdrawAvailable(t *testing.T) {
	t.Parallel()
	d := at(t, "")
	step(t, &d, us.AnnounceAvailable{Available: us.Available{TargetVersion: "v2", TransformHash: "h", Precopied: true}})
	same, err := us.Apply(d, us.WithdrawAvailable{TargetVersion: "v2"})
	if err != nil || !reflect.DeepEqual(same, d) {
		t.Errorf("while it runs: %+v, %v", same.Available, err)
	}
	step(t, &d, us.Abort{})
	step(t, &d, us.WithdrawAvailable{TargetVersion: "v3"})
	step(t, &d, us.WithdrawAvailable{TargetVersion: "v2"})
	if len(d.Available) != 0 {
		t.Errorf("%+v", d.Available)
	}
	again, err := us.Apply(d, us.WithdrawAvailable{TargetVersion: "v2"})
	if err != nil || !reflect.DeepEqual(again, d) {
		t.Errorf("again: %v", err)
	}
	if _, err := us.Apply(d, us.Begin{ID: "u9", TargetVersion: "v2"}); err == nil || !strings.Contains(err.Error(), "no controller offers an upgrade to v2") {
		t.Errorf("begun: %v", err)
	}
}

// TestRetiringIsNotOffered: nobody offers an upgrade to what is being dropped.
func TestRetiringIsNotOffered(t *testing.T) {
	t.Parallel()
	d := at(t, "")
	step(t, &d, us.Abort{})
	step(t, &d, us.Complete{Version: "v2"})
	if _, err := us.Apply(d, us.AnnounceAvailable{Available: us.Available{TargetVersion: "v2"}}); err == nil || !strings.Contains(err.Error(), "v2 was retired") {
		t.Errorf("offered: %v", err)
	}
}
