package identity_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestWithoutALostDatabase: where the database of a version that is not served is lost, the message
// names the commands that go on without it. Before any switch, none can be retired.
func TestWithoutALostDatabase(t *testing.T) {
	t.Parallel()
	const recover = "stop all processes and run 'dbcontroller recover'"
	for name, tc := range map[string]struct {
		lost string
		last *upgradestate.Switch
		want string // "": callers know
	}{
		"the next version":              {lost: "v2", want: "if it is lost for good, " + recover},
		"the former version":            {lost: "v2", last: &upgradestate.Switch{From: "v2", To: "v1"}, want: "give it up with 'dbcontroller complete --version v2', or " + recover},
		"the version that is served":    {lost: "v1"},
		"the version that serves again": {lost: "v1", last: &upgradestate.Switch{From: "v2", To: "v1"}},
	} {
		w := newWorld(t, record.FenceView)
		w.d.LastSwitch = tc.last
		empty := memstore.NewCluster(memstore.Options{}).Open("empty")
		err := identity.Same(t.Context(), w, map[string]record.Marker{tc.lost: empty})
		if !identity.IsLost(err) || !strings.Contains(err.Error(), tc.want) || tc.want == "" && strings.Contains(err.Error(), "lost for good") {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
