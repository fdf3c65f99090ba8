package status

import (
	"strings"
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestRightAfterTheSwitch: until a controller has announced the direction back, what is said of it
// is true while controllers run.
func TestRightAfterTheSwitch(t *testing.T) {
	t.Parallel()
	d := upgradestate.New("services/a/deployments/b", "v2", 1)
	d.LastSwitch = &upgradestate.Switch{ID: "u1", From: "v1", To: "v2"}
	got := NoReverseSync(d)
	if !strings.Contains(got, "does not follow yet") || !strings.Contains(got, "retry") {
		t.Errorf("%s", got)
	}
}
