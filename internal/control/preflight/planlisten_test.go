package preflight

import (
	"strings"
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/transform"
)

// TestPlanSaysWhoCanListen: plan names what goes in plaintext to other machines, and what
// depends on this one.
func TestPlanSaysWhoCanListen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		etcd     Coordination
		far      []string // hosts of the databases that are reached in plaintext
		warnings []string
	}{
		"all near or with TLS": {Coordination{Endpoints: []string{"127.0.0.1:2379"}}, nil, nil},
		"embedded":             {Coordination{Embedded: true}, nil, []string{"serves only this machine"}},
		"etcd elsewhere":       {Coordination{Endpoints: []string{"http://etcd1:2379"}, Plaintext: []string{"http://etcd1:2379"}}, nil, []string{"can read the password"}},
		"database elsewhere":   {Coordination{Endpoints: []string{"https://etcd1:2379"}}, []string{"db1:27017"}, []string{"(db1:27017)", "(db1:27017)"}},
	} {
		parts := PlannerParts{Settings: Settings{Coordination: c.etcd, Plaintext: map[string][]string{"v1": c.far, "v2": c.far}}}
		p := &plan{Planner: NewPlanner(parts), report: &pb.PlanReport{}, dir: between{}}
		if err := p.wires(t.Context()); err != nil {
			t.Fatal(err)
		}
		var warnings []string
		for _, check := range p.report.Checks {
			if check.Verdict == pb.PlanCheck_WARNING {
				warnings = append(warnings, check.Text)
			}
		}
		if len(warnings) != len(c.warnings) {
			t.Errorf("%s: %q, want %q", name, warnings, c.warnings)
			continue
		}
		for i, w := range c.warnings {
			if !strings.Contains(warnings[i], w) {
				t.Errorf("%s: %q does not say %q", name, warnings[i], w)
			}
		}
	}
}

// between is a direction that has nothing but its two ends.
type between struct{ transform.Direction }

func (between) From() string { return "v1" }
func (between) To() string   { return "v2" }
