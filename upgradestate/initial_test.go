package upgradestate

import (
	"strings"
	"testing"
)

// TestInitial: where a deployment begins that is not there yet.
func TestInitial(t *testing.T) {
	t.Parallel()
	v := func(version string, holds ...string) Found { return Found{Version: version, Holds: holds} }
	has := func(version string, empty ...string) Found { return Found{Version: version, Empty: empty} }
	disabled := func(f Found) Found { f.Disabled = true; return f }
	old := []ServerState{{ID: "s1", Protocol: MinProtocol, Versions: []string{"v1", "v2"}}}
	for _, tc := range []struct {
		name       string
		configured string
		found      []Found
		servers    []ServerState
		want       string
		refusal    []string
	}{
		{name: "empty databases", found: []Found{v("v1"), v("v2"), v("v3")}, want: "v3"},
		{name: "one version", found: []Found{v("v1")}, want: "v1"},
		{name: "a server does not know the newest", found: []Found{v("v1"), v("v2"), v("v3")}, servers: old, want: "v2"},
		{name: "a server knows none", found: []Found{v("v3"), v("v4")}, servers: old, refusal: []string{"s1 knows only v1, v2"}},
		{name: "applications do not count", found: []Found{v("v1"), v("v2")}, servers: []ServerState{{ID: "a", Protocol: MinProtocol, Client: true}}, want: "v2"},
		{name: "the newest is disabled", found: []Found{v("v1"), disabled(v("v2"))}, want: "v1"},
		{name: "places of the newest", found: []Found{v("v1"), v("v2"), v("v2@b")}, want: "v2"},
		{name: "a place is disabled", found: []Found{v("v1"), disabled(v("v2")), v("v2@b")}, want: "v2@b"},
		{name: "the old one holds data", found: []Found{v("v1", "users"), v("v2")}, want: "v1"},
		{name: "the new one holds data", found: []Found{v("v1"), v("v2", "users")}, want: "v2"},
		{name: "what holds data is disabled", found: []Found{disabled(v("v1", "users")), v("v2")}, want: "v1"},
		{name: "data decides before empty collections", found: []Found{v("v1", "users"), has("v2", "users")}, want: "v1"},
		{name: "one has empty collections", found: []Found{has("v1", "users"), v("v2")}, want: "v1"},
		{name: "one in the middle has empty collections", found: []Found{v("v1"), has("v2", "users"), v("v3")}, want: "v2"},
		{name: "both have empty collections", found: []Found{has("v1", "users"), has("v2", "users")}, want: "v2"},
		{name: "data of a version that servers do not know", found: []Found{v("v2"), v("v3", "users")}, servers: old, want: "v3"},
		{name: "both hold data", found: []Found{v("v1", "users", "orders"), v("v2", "users")},
			refusal: []string{"v1 (users, orders) and v2 (users)", "initialVersion"}},
		{name: "both hold data, and it is said", configured: "v1", found: []Found{v("v1", "users"), v("v2", "users")}, want: "v1"},
		{name: "as configured", configured: "v1", found: []Found{v("v1"), v("v2")}, want: "v1"},
		{name: "nothing", refusal: []string{"no version is configured"}},
	} {
		got, err := Initial(tc.configured, tc.found, tc.servers)
		if got != tc.want || (err != nil) != (tc.refusal != nil) {
			t.Errorf("%s: got %q, %v, want %q", tc.name, got, err, tc.want)
		}
		for _, want := range tc.refusal {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q, want %q in it", tc.name, err, want)
			}
		}
	}
}

// TestLateServers: who came too late and is too old is named.
func TestLateServers(t *testing.T) {
	t.Parallel()
	servers := []ServerState{
		{ID: "new", Protocol: MinProtocol, Versions: []string{"v1", "v2"}}, {ID: "old", Protocol: MinProtocol, Versions: []string{"v1"}},
		{ID: "ancient", Protocol: MinProtocol - 1, Versions: []string{"v1", "v2"}},
	}
	got := LateServers(servers, "v2")
	for _, want := range []string{"old knows only v1", "ancient speaks protocol", "update or stop"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	if got := LateServers(servers[:1], "v2"); got != "" {
		t.Errorf("got %q of a server that follows", got)
	}
}
