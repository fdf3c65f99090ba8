package keys

import (
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/upgradestate"
)

// TestKeysThatLack: no upgrade begins to records whose key this controller or a server is not
// configured with, and those that have announced no keys of the version do not count.
func TestKeysThatLack(t *testing.T) {
	t.Parallel()
	k := newKeyed(t, keysOf(t, "a001", "a001", "a002"))
	k.ID = "c1"
	lease, err := k.coord.Grant(t.Context(), time.Hour)
	k.check(err)
	defer lease.Close(t.Context()) //nolint:errcheck // of a test
	all := k.keys
	for _, tc := range []struct {
		name       string
		server     upgradestate.ServerState
		want, also string
	}{
		{name: "all have it", server: upgradestate.ServerState{Keys: map[string][]string{"v1": all.Checked()}}},
		{name: "nothing is announced", server: upgradestate.ServerState{Keys: map[string][]string{"v2": {"b001:1"}}}},
		{
			name: "a server has others", server: upgradestate.ServerState{Keys: map[string][]string{"v1": {all.Check("a002")}}},
			want: "records of v1 are encrypted with key a001, ", also: " at server s1: add the file of a001",
		},
		{
			name: "a server has another of its name", server: upgradestate.ServerState{Keys: map[string][]string{"v1": {"a001:0"}}},
			want: "records of v1 are encrypted with key a001, ", also: " at server s1: add the file of a001",
		},
		{
			name: "an application has none", server: upgradestate.ServerState{Client: true, Keys: map[string][]string{"v1": {"a001:0"}}},
		},
	} {
		tc.server.ID = "s1"
		k.check(k.Deployments.Register(t.Context(), lease, tc.server))
		got, err := k.Lack(t.Context(), "v1")
		if err != nil || (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) || !strings.Contains(got, tc.also) {
			t.Errorf("%s: it says %q, %v; want %q and %q", tc.name, got, err, tc.want, tc.also)
		}
	}
	if got, err := k.Lack(t.Context(), "v9"); got != "" || err != nil {
		t.Errorf("of a version that is not configured it says %q, %v", got, err)
	}
}
