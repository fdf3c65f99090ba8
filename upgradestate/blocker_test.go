package upgradestate_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
)

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
