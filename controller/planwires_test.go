package controller

import (
	"strings"
	"testing"

	"dbcontroller/config"
	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/transform"
)

// TestPlanSaysWhoCanListen: plan names what goes in plaintext to other machines, and what
// depends on this one.
func TestPlanSaysWhoCanListen(t *testing.T) {
	t.Parallel()
	near := config.NewSecret("mongodb://localhost:1")
	for name, c := range map[string]struct {
		etcd     config.Etcd
		embedded bool
		db       config.Secret
		warnings []string
	}{
		"all near":           {config.Etcd{Endpoints: []string{"127.0.0.1:2379"}}, false, near, nil},
		"embedded":           {config.Etcd{}, true, near, []string{"for this machine alone"}},
		"etcd elsewhere":     {config.Etcd{Endpoints: []string{"http://etcd1:2379"}}, false, near, []string{"reads the password"}},
		"etcd with TLS":      {config.Etcd{Endpoints: []string{"etcd1:2379"}, CAFile: "ca.crt"}, false, near, nil},
		"database elsewhere": {config.Etcd{Endpoints: []string{"https://etcd1:2379"}}, false, config.NewSecret("mongodb://me:hidden@db1"), []string{"(db1:27017)", "(db1:27017)"}},
		"database with TLS":  {config.Etcd{Endpoints: []string{"https://etcd1:2379"}}, false, config.NewSecret("mongodb://me:hidden@db1/?tls=true"), nil},
	} {
		cfg := config.Config{Etcd: c.etcd, DBs: []config.DB{{Version: "v1", Endpoint: c.db}, {Version: "v2", Endpoint: c.db}}}
		p := &plan{app: &App{cfg: cfg, opts: Options{EmbeddedEtcd: c.embedded}}, report: &pb.PlanReport{}, dir: between{}}
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
			if !strings.Contains(warnings[i], w) || strings.Contains(warnings[i], "hidden") {
				t.Errorf("%s: %q does not say %q", name, warnings[i], w)
			}
		}
	}
}

// between is a direction that has nothing but its two ends.
type between struct{ transform.Direction }

func (between) From() string { return "v1" }
func (between) To() string   { return "v2" }
