package upgradestate

import (
	"strings"
	"testing"
)

// TestDecide has a case for every row of the table, and fails for a row without one.
func TestDecide(t *testing.T) {
	t.Parallel()
	deployment := func(current, target string, namespaces ...string) *Deployment {
		d := New("services/bbs/deployments/test", current, 16)
		for _, v := range namespaces {
			d.Namespaces = append(d.Namespaces, Namespace{Version: v})
		}
		if target != "" {
			d.Upgrade = &Upgrade{ID: "u1", TargetVersion: target}
		}
		return &d
	}
	withFormat := func(d *Deployment, format int) *Deployment {
		d.Format = format
		return d
	}
	retired := func(d *Deployment, version string) *Deployment {
		d.Retired = append(d.Retired, version)
		return d
	}
	retiring := func(d *Deployment, version string) *Deployment {
		d.Retire = &Retire{Version: version}
		return d
	}
	covered := map[string]bool{}
	for _, tc := range []struct {
		row    string
		known  string
		record *Deployment
		role   Role
		says   string
	}{
		{"no version configured", "", deployment("v1", ""), Refuse, "configure at least one"},
		{"no version configured", "", nil, Refuse, "configure at least one"},
		{"no deployment", "v1 v2", nil, CreateFirst, "at the newest version that all servers know"},
		{"newer format", "v1", withFormat(deployment("v1", ""), Format+1), Refuse, "use a newer binary"},
		{"no format", "v1", withFormat(deployment("v1", ""), 0), Refuse, "no deployment"},
		{"current version unknown", "v2 v3", deployment("v1", "", "v1"), Refuse, "at version v1, this binary knows only v2, v3"},
		{"current version unknown", "v2", deployment("v1", "v2", "v1", "v2"), Refuse, "at version v1"},
		{"upgrade to an unknown version", "v1", deployment("v1", "v2", "v1", "v2"), ServeUntilFlip, "replace it before"},
		{"upgrade to an unknown version", "v1 v2", deployment("v2", "v3", "v1", "v2", "v3"), ServeUntilFlip, "from v2 to v3"},
		{"upgrade between known versions", "v1 v2", deployment("v1", "v2", "v1", "v2"), GoOn, "from v1 to v2"},
		{"upgrade between known versions", "v1 v2", deployment("v2", "v1", "v1", "v2"), GoOn, "from v2 to v1"},
		{"later version known", "v1 v2", deployment("v1", "", "v1"), ServeSync, "v2 can be prepared"},
		{"later version known", "v1 v2 v3", deployment("v2", "", "v1", "v2"), ServeSync, "v3 can be prepared"},
		{"earlier version kept", "v1 v2", deployment("v2", "", "v1", "v2"), ServeSync, "v1 is kept in sync"},
		{"later version known", "v1 v1@b v2", deployment("v1", "", "v1"), ServeSync, "v2 can be prepared"},
		{"later version known", "v1 v1@b v2 v2@b", deployment("v1@b", "", "v1", "v1@b"), ServeSync, "v2 can be prepared"},
		{"later version known", "v1 v2 v3", retired(deployment("v1", "", "v1"), "v2"), ServeSync, "v3 can be prepared"},
		{"earlier version kept", "v1 v2 v2@b", deployment("v2@b", "", "v1", "v2", "v2@b"), ServeSync, "v1 is kept in sync"},
		{"current version unknown", "v1 v2", deployment("v1@b", "", "v1", "v1@b"), Refuse, "at version v1@b, this binary knows only v1, v2"},
		{"upgrade to an unknown version", "v1", deployment("v1", "v1@b", "v1", "v1@b"), ServeUntilFlip, "from v1 to v1@b"},
		{"upgrade between known versions", "v1 v1@b", deployment("v1", "v1@b", "v1", "v1@b"), GoOn, "from v1 to v1@b"},
		{"another place known", "v1 v1@b", deployment("v1", "", "v1"), ServeSync, "can be moved to v1@b"},
		{"another place known", "v1 v1@b", deployment("v1@b", "", "v1", "v1@b"), ServeSync, "can be moved to v1"},
		{"another place known", "v1 v2 v2@b", retired(deployment("v2", "", "v2"), "v1"), ServeSync, "can be moved to v2@b"},
		{"current version only", "v1 v1@b", retired(deployment("v1", "", "v1"), "v1@b"), Serve, "at v1"},
		{"current version only", "v1 v2", retired(deployment("v2", "", "v2"), "v1"), Serve, "at v2"},
		{"current version only", "v1 v2", retiring(deployment("v2", "", "v1", "v2"), "v1"), Serve, "at v2"},
		{"current version, unknown others", "v1", deployment("v1", "", "v1", "v2"), Serve, "leaves alone"},
		{"current version only", "v1", deployment("v1", "", "v1"), Serve, "at v1"},
		{"current version only", "v1 v2", deployment("v2", "", "v2"), Serve, "at v2"},
	} {
		covered[tc.row] = true
		known := strings.Fields(tc.known)
		got := Decide(known, tc.record)
		if got.Role != tc.role || !strings.Contains(got.Reason, tc.says) {
			t.Errorf("%s: knowing %v: %+v, want %s with %q", tc.row, known, got, tc.role, tc.says)
		}
		f := factsOf(known, tc.record)
		for _, row := range decisions {
			if row.when(f) {
				if row.name != tc.row {
					t.Errorf("knowing %v: decided by %q, want %q", known, row.name, tc.row)
				}
				break
			}
		}
	}
	for _, row := range decisions {
		if !covered[row.name] {
			t.Errorf("row %q has no case", row.name)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for role, want := range map[Role][2]bool{
		Serve: {true, true}, ServeSync: {true, true}, GoOn: {true, true}, CreateFirst: {true, true},
		ServeUntilFlip: {true, false}, Refuse: {false, false}, Role("other"): {false, false},
	} {
		if got := [2]bool{role.Serves(), role.Controls()}; got != want {
			t.Errorf("%s: serves, controls = %v, want %v", role, got, want)
		}
	}
}
