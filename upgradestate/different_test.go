package upgradestate_test

import (
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/upgradestate"
)

func TestDifferent(t *testing.T) {
	d := upgradestate.New("services/a/deployments/b", "v1", 3)
	apply := func(ev upgradestate.Event) {
		t.Helper()
		next, err := upgradestate.Apply(d, ev)
		if err != nil {
			t.Fatal(err)
		}
		d = next
	}
	for _, v := range []string{"v1", "v2"} {
		apply(upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: v, Location: v, Kinds: []upgradestate.Kind{
			{Kind: "k", Physical: "k.n1", ID: strings.Repeat(v[1:], 32), Fence: "uuid"},
		}}})
	}
	apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h", Precopied: true}})
	ns, _ := d.Namespace("v2")
	found := upgradestate.Compared{Version: "v2", Epoch: 1, Seen: ns.Images, Count: 2, Names: []string{"x", "y"}}

	if _, err := upgradestate.Apply(d, upgradestate.Repair{Version: "v2", ID: "r"}); err == nil {
		t.Error("there is nothing to repair, and it is asked for")
	}
	late := found
	late.Epoch = 2
	if _, err := upgradestate.Apply(d, late); !errors.Is(err, upgradestate.ErrOutdated) {
		t.Errorf("a comparison of another direction: %v", err)
	}
	apply(found)
	apply(upgradestate.Begin{ID: "u", TargetVersion: "v2"})
	apply(upgradestate.Report{ID: "u", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{0, 1, 2}})
	if got := upgradestate.SwitchBlocker(d); got != "'verify --repair': a comparison found 2 groups that differ (x, y) in v2" {
		t.Errorf("the switch waits for %q", got)
	}
	if _, err := upgradestate.Apply(d, upgradestate.StartSwitch{ID: "u"}); err == nil {
		t.Error("a switch begins with a difference")
	}

	// Nothing but a comparison or a repair ends it.
	paused := true
	apply(upgradestate.SetPace{Paused: &paused})
	paused = false
	apply(upgradestate.SetPace{Paused: &paused})
	apply(upgradestate.Abort{ID: "u"})
	apply(upgradestate.Begin{ID: "u2", TargetVersion: "v2"})
	if upgradestate.OpenDifferent(d) == nil {
		t.Fatal("the difference is forgotten")
	}

	apply(upgradestate.Repair{Version: "v2", ID: "r"})
	apply(upgradestate.Repaired{Version: "v2", ID: "r", Shards: []int{0, 2}})
	if got := upgradestate.SwitchBlocker(d); !strings.Contains(got, "2 of 3 shards are compared") {
		t.Errorf("the switch waits for %q", got)
	}
	if _, err := upgradestate.Apply(d, upgradestate.Repaired{Version: "v2", ID: "earlier", Shards: []int{1}}); !errors.Is(err, upgradestate.ErrOutdated) {
		t.Errorf("a report for another request: %v", err)
	}
	apply(upgradestate.Repaired{Version: "v2", ID: "r", Shards: []int{1}})
	if got := upgradestate.SwitchBlocker(d); got != "" {
		t.Errorf("the switch waits for %q after the repair", got)
	}

	apply(found)
	found.Count, found.Names = 0, nil
	apply(found)
	if got := upgradestate.DifferentLine(d); got != "" {
		t.Errorf("a comparison found nothing, and there is %q", got)
	}
}
