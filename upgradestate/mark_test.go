package upgradestate_test

import (
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestMark: appliers send the fence of a kind that keeps its name. An opening without a seal ends
// that fence for them.
func TestMark(t *testing.T) {
	for _, tt := range []struct {
		kind upgradestate.Kind
		want string
	}{
		{upgradestate.Kind{Fixed: true, Fence: "validator", Fenced: "orders.n2"}, "orders.n2"},
		{upgradestate.Kind{Fixed: true, Fence: "writeBlock", Fenced: "orders.n2"}, "orders.n2"},
		{upgradestate.Kind{Fixed: true, Fence: "validator"}, ""},
		{upgradestate.Kind{Fixed: true, Fence: "validator", Fenced: "orders.n2", Hidden: true}, ""},
		{upgradestate.Kind{Fixed: true, Fence: "view", Fenced: "orders.n2"}, ""},
		{upgradestate.Kind{Fence: "validator", Fenced: "orders.n2"}, ""},
	} {
		if have := tt.kind.Mark(); have != tt.want {
			t.Errorf("mark of %+v: %q, want %q", tt.kind, have, tt.want)
		}
	}
	for _, recovered := range []bool{false, true} {
		d := upgradestate.Deployment{
			CurrentVersion: "v1",
			LastSwitch:     &upgradestate.Switch{From: "v2", To: "v1", Outdated: recovered},
			Namespaces: []upgradestate.Namespace{{Version: "v1", Kinds: []upgradestate.Kind{{
				Kind: "orders", Physical: "orders", Fixed: true, Fence: "validator", Fenced: "orders.n2",
				Pending: &upgradestate.Pending{Reason: upgradestate.PendingOpen, From: "orders.n2", To: "orders"},
			}}}},
		}
		want, found := "", false
		if recovered {
			want = "orders.n2"
		}
		for _, a := range upgradestate.Actions(d) {
			if open, ok := a.(upgradestate.Unfence); ok {
				found = true
				if open.Ends != want {
					t.Errorf("recovered %t: the opening ends %q, want %q", recovered, open.Ends, want)
				}
			}
		}
		if !found {
			t.Errorf("recovered %t: no opening in %+v", recovered, upgradestate.Actions(d))
		}
	}
}
