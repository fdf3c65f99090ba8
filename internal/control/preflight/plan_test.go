package preflight

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// planned is a plan from v1 to v2 of which only what is given is known.
func planned(t *testing.T, s record.Survey, copySeconds, bytes int64) *plan {
	t.Helper()
	return &plan{
		Planner: &Planner{}, dir: emptyDirection(t), report: &pb.PlanReport{EstimatedCopySeconds: &copySeconds},
		surveys: map[string]record.Survey{"v1": s, "v2": s},
		sizes:   map[string]record.Size{"orders": {Records: 10, Bytes: bytes}},
		tried:   measured{bytes: 100, made: 250},
	}
}

// monitored is a database that can be measured, or not.
type monitored struct {
	Space
	err error
}

func (m monitored) Health(context.Context) (record.Health, error) { return record.Health{}, m.err }

// TestPlanVerdicts of what cannot be had from a server that is well.
func TestPlanVerdicts(t *testing.T) {
	t.Parallel()
	const gib = int64(1) << 30
	space := func(p *plan) { _ = p.space(t.Context()) }
	oplog := func(p *plan) { _ = p.oplog(t.Context()) }
	server := func(p *plan) { p.server("v1", p.surveys["v1"]) }
	state := func(d upgradestate.Deployment) func(*plan) {
		return func(p *plan) { p.record = d; _ = p.state(t.Context()) }
	}
	load := func(err error, off bool) func(*plan) {
		return func(p *plan) {
			p.Settings.Unthrottled = off
			p.Space = func(string) Space { return monitored{err: err} }
			p.load(t.Context(), "v1")
		}
	}
	bounded := func(version string, configured, set int) func(*plan) {
		return func(p *plan) {
			p.Settings.MaxSourceLoad, p.record.Pace.MaxSourceLoad = configured, set
			p.surveys["v2"] = p.surveys["v1"]
			p.Space = func(string) Space { return monitored{} }
			p.load(t.Context(), version)
		}
	}
	undo := func(disabled bool) func(*plan) {
		return func(p *plan) {
			p.record = upgradestate.Deployment{CurrentVersion: "v1"}
			p.Kept = func(string) bool { return !disabled }
			_ = p.undo(t.Context())
		}
	}
	full := record.Survey{Text: "MongoDB 8.2.1, replica set", Server: "8.2.1", Feature: "8.2", UUIDs: true}
	for name, tc := range map[string]struct {
		survey record.Survey
		look   func(*plan)
		want   pb.PlanCheck_Verdict
		text   string
	}{
		"room":                 {record.Survey{DiskTotal: 100 * gib, DiskFree: 60 * gib}, space, pb.PlanCheck_OK, "needs about 25.0 GiB"},
		"little room":          {record.Survey{DiskTotal: 100 * gib, DiskFree: 30 * gib}, space, pb.PlanCheck_WARNING, "indexes and the oplog take more"},
		"no room":              {record.Survey{DiskTotal: 100 * gib, DiskFree: 20 * gib}, space, pb.PlanCheck_FAILED, "make room first"},
		"room is not known":    {record.Survey{}, space, pb.PlanCheck_WARNING, "check it yourself"},
		"long oplog":           {record.Survey{Oplog: 24 * time.Hour}, oplog, pb.PlanCheck_OK, "24h0m0s"},
		"oplog barely enough":  {record.Survey{Oplog: 90 * time.Minute}, oplog, pb.PlanCheck_WARNING, "twice"},
		"short oplog":          {record.Survey{Oplog: 10 * time.Minute}, oplog, pb.PlanCheck_FAILED, "replSetResizeOplog"},
		"oplog is not known":   {record.Survey{OplogProblem: "grant clusterMonitor"}, oplog, pb.PlanCheck_WARNING, "grant clusterMonitor"},
		"server":               {full, server, pb.PlanCheck_OK, "MongoDB 8.2.1, replica set"},
		"server runs as older": {record.Survey{Server: "8.2.1", Feature: "8.0", UUIDs: true}, server, pb.PlanCheck_WARNING, "featureCompatibilityVersion"},
		"server without UUIDs": {record.Survey{Server: "5.0.3", Feature: "5.0"}, server, pb.PlanCheck_WARNING, "validator fence"},
		"load":                 {full, load(nil, false), pb.PlanCheck_OK, "can be measured"},
		"load is not known":    {full, load(errors.New("grant clusterMonitor"), false), pb.PlanCheck_FAILED, "copy.throttle: off"},
		"load is not asked":    {full, load(errors.New("grant clusterMonitor"), true), pb.PlanCheck_WARNING, "copy.throttle is off"},
		"load has a bound":     {full, bounded("v1", 50, 0), pb.PlanCheck_OK, "can be measured"},
		"etcd tells no load":   {record.Survey{NoCPU: true}, bounded("v1", 50, 0), pb.PlanCheck_WARNING, "has no effect"},
		"mongos tells no load": {record.Survey{Mongos: true}, bounded("v1", 0, 50), pb.PlanCheck_WARNING, "has no effect"},
		"it has no bound":      {record.Survey{NoCPU: true}, bounded("v1", 0, 0), pb.PlanCheck_OK, "can be measured"},
		"the target has none":  {record.Survey{NoCPU: true}, bounded("v2", 50, 50), pb.PlanCheck_OK, "can be measured"},
		"nothing runs":         {full, state(upgradestate.Deployment{}), pb.PlanCheck_OK, "it may begin"},
		"another one runs":     {full, state(upgradestate.Deployment{Upgrade: &upgradestate.Upgrade{TargetVersion: "v3"}}), pb.PlanCheck_FAILED, "abort it"},
		"a version is retired": {full, state(upgradestate.Deployment{Retire: &upgradestate.Retire{Version: "v0"}}), pb.PlanCheck_FAILED, "v0 is being retired"},
		"v1 will follow":       {full, undo(false), pb.PlanCheck_OK, "'complete' cannot be undone"},
		"v1 will not follow":   {full, undo(true), pb.PlanCheck_WARNING, "only 'rollback --to-snapshot'"},
		"bulk work is paused":  {full, state(upgradestate.Deployment{Pace: upgradestate.Pace{Paused: true}}), pb.PlanCheck_WARNING, "'resume'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := planned(t, tc.survey, 3600, 10*gib)
			tc.look(p)
			if len(p.report.Checks) == 0 {
				t.Fatal("nothing was found")
			}
			if c := p.report.Checks[0]; c.Verdict != tc.want || !strings.Contains(c.Text, tc.text) {
				t.Errorf("%s: %s; want %s with %q", c.Verdict, c.Text, tc.want, tc.text)
			}
		})
	}
}

// TestReason leaves out what the server says, which repeats the whole command.
func TestReason(t *testing.T) {
	t.Parallel()
	err := &record.UnsupportedError{What: "fence class view in db", Reason: "it needs applyOps: (Unauthorized) not authorized to execute { ... }"}
	if got := reason(err); got != "it needs applyOps" {
		t.Errorf("%q", got)
	}
	if got := reason(errors.New("the server is gone")); got != "the server is gone" {
		t.Errorf("%q", got)
	}
}

// opening is a deployment whose collections are just being given their names.
type opening struct{ PlannerDeployment }

func (opening) Get(context.Context) (upgradestate.Deployment, error) {
	return upgradestate.Deployment{CurrentVersion: "v1", Namespaces: []upgradestate.Namespace{{Version: "v1", Kinds: []upgradestate.Kind{
		{Kind: "orders", Physical: "orders.n2", Pending: &upgradestate.Pending{Reason: upgradestate.PendingOpen, From: "orders.n2", To: "orders"}},
	}}}}, nil
}

// TestPlanWhileNamesChange: a plan does not take what is just being renamed for missing.
func TestPlanWhileNamesChange(t *testing.T) {
	t.Parallel()
	l := &Planner{PlannerParts: PlannerParts{Deployments: opening{}, Reachable: func(upgradestate.Deployment) []string { return []string{"v2"} }}}
	if report, err := l.Plan(t.Context(), "v2", nil); err == nil || !strings.Contains(err.Error(), "repeat the plan in a moment") {
		t.Errorf("%v, %v", report, err)
	}
}

// TestPlanNamesViews: the plan warns of each view that reads a kind, directly or through others, and
// of no other view.
func TestPlanNamesViews(t *testing.T) {
	t.Parallel()
	source := memstore.New()
	if _, err := source.Provision(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders"); err != nil {
		t.Fatal(err)
	}
	other := record.View{Name: "other", Reads: []string{"customers"}}
	for name, tc := range map[string]struct {
		views []record.View
		want  string
	}{
		"none":      {nil, ""},
		"unrelated": {[]record.View{other}, ""},
		"two":       {[]record.View{other, {Name: "daily", Reads: []string{"open"}}, {Name: "open", Reads: []string{"orders"}}}, "2 views read collections of the former version (daily, open)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := planned(t, record.Survey{Views: tc.views}, 0, 0)
			p.infos, p.Space = map[string]record.Info{}, func(string) Space { return source }
			if err := p.sources(t.Context()); err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, c := range p.report.Checks {
				if c.Area == "views" {
					text += c.Text
				}
				if c.Verdict == pb.PlanCheck_FAILED || (c.Verdict == pb.PlanCheck_WARNING) != (c.Area == "views") {
					t.Errorf("%s: %s: %s", c.Area, c.Verdict, c.Text)
				}
			}
			if !strings.HasPrefix(text, tc.want) || (text == "") != (tc.want == "") {
				t.Errorf("%q; want %q", text, tc.want)
			}
		})
	}
}
