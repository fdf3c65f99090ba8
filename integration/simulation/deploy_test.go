package simulation_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/transform"
)

// What is in deploy/ for Prometheus and Grafana is compared with what the program exports
// while an upgrade runs: a metric that is renamed, or a label that is not there, would make
// an alert that never fires.

// query is an expression of a rule or of a panel.
type query struct{ where, expr string }

// alertRules are the rules of Prometheus, with what a rule must have.
func alertRules(t *testing.T, path string) (all []query) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] || r.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
				t.Errorf("rule %q: want a name of its own, a summary and a severity", r.Alert)
			}
			seen[r.Alert] = true
			all = append(all, query{"alert " + r.Alert, r.Expr})
		}
	}
	return all
}

// panels are the queries of a dashboard of Grafana, with its variables put in.
func panels(t *testing.T, path string) (all []query) {
	t.Helper()
	type panel struct {
		Title, Type string
		Targets     []struct{ Expr string }
		GridPos     struct{ X, Y, W, H int }
	}
	var file struct {
		UID    string
		Panels []panel
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range file.Panels {
		for _, q := range file.Panels[:i] {
			if a, b := p.GridPos, q.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q lie over each other", p.Title, q.Title)
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			all = append(all, query{"panel " + p.Title, strings.NewReplacer("$__rate_interval", "1m", "$deployment", name).Replace(target.Expr)})
		}
	}
	return all
}

// ofPrometheus are labels that Prometheus adds to what it scrapes.
var ofPrometheus = []string{"instance", "job"}

// check compares an expression with what is exported, and returns the metrics that it uses.
func (q query) check(seen exported) (used, problems []string) {
	problem := func(format string, args ...any) {
		problems = append(problems, q.where+": "+fmt.Sprintf(format, args...))
	}
	parsed, err := metricsql.Parse(q.expr)
	if err != nil {
		problem("%v", err)
		return nil, problems
	}
	labels := map[string]bool{} // of everything in the expression
	var grouped []string
	metricsql.VisitAll(parsed, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			for _, filters := range e.LabelFilterss {
				metric := filters[0].Value
				if filters[0].Label != "__name__" || seen[metric] == nil {
					problem("%s is not exported", metric)
					continue
				}
				used = append(used, metric)
				for l := range seen[metric] {
					labels[l] = true
				}
				for _, f := range filters[1:] {
					if !slices.ContainsFunc(seen[metric][f.Label], func(v string) bool { return matches(f, v) }) && !slices.Contains(ofPrometheus, f.Label) {
						problem("%s has no %s that fits %q", metric, f.Label, f.Value)
					}
				}
			}
		case *metricsql.AggrFuncExpr:
			grouped = append(grouped, e.Modifier.Args...)
		case *metricsql.BinaryOpExpr:
			grouped = append(grouped, e.GroupModifier.Args...)
		case *metricsql.FuncExpr:
			if slices.Contains([]string{"rate", "increase"}, e.Name) { // Prometheus wants the time, MetricsQL does not
				if r, ok := e.Args[0].(*metricsql.RollupExpr); !ok || r.Window == nil {
					problem("%s without a time", e.Name)
				}
			}
		}
	})
	for _, l := range grouped {
		if !labels[l] && !slices.Contains(ofPrometheus, l) {
			problem("nothing in it has the label %s", l)
		}
	}
	return used, problems
}

// matches reports whether a filter takes a value.
func matches(f metricsql.LabelFilter, v string) bool {
	is := f.Value == v
	if f.IsRegexp {
		is = regexp.MustCompile("^(?:" + f.Value + ")$").MatchString(v)
	}
	return is != f.IsNegative
}

const (
	rulesFile     = "../../deploy/prometheus/dbcontroller.rules.yaml"
	dashboardFile = "../../deploy/grafana/dbcontroller.json"
)

// TestDeployFiles: the rules and the dashboard use nothing but what is exported, and the
// dashboard shows all that is known of a whole deployment.
func TestDeployFiles(t *testing.T) {
	raced.Leave(t)
	seen := exported{}
	synctest.Test(t, func(t *testing.T) { watched(t, seen) })
	used := map[string]bool{}
	for _, q := range append(alertRules(t, rulesFile), panels(t, dashboardFile)...) {
		metrics, problems := q.check(seen)
		for _, p := range problems {
			t.Error(p)
		}
		if len(metrics) == 0 {
			t.Errorf("%s: %s uses no metric", q.where, q.expr)
		}
		for _, m := range metrics {
			used[m] = true
		}
	}
	for metric := range seen {
		if ofShards := strings.HasPrefix(metric, "dbcontroller_shard_"); !used[metric] && !ofShards && !strings.HasPrefix(metric, "dbcontroller_server_") {
			t.Errorf("nothing in deploy/ uses %s", metric)
		}
	}
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for metric := range seen {
		short := strings.TrimPrefix(metric, "dbcontroller_")
		if !strings.Contains(string(doc), "`"+short+"`") && !strings.HasPrefix(short, "shard_") {
			t.Errorf("docs/operations.md does not tell of %s", metric)
		}
	}
	for _, d := range described(t) {
		if seen[d] == nil {
			t.Errorf("%s is described and was never exported in a whole upgrade", d)
		}
	}
}

// TestQueriesAreChecked is the check of the check.
func TestQueriesAreChecked(t *testing.T) {
	t.Parallel()
	seen := exported{"a": {"x": {"1", "2"}}, "b_total": {"y": {"3"}}}
	for expr, want := range map[string]string{
		`max by (x) (a{x="1"}) > 0`:  "",
		`rate(b_total[5m])`:          "",
		`a{x=~"[0-9]"} and on (x) a`: "",
		`sum by (instance) (a)`:      "",
		`c > 0`:                      "c is not exported",
		`a{x="4"}`:                   `a has no x that fits "4"`,
		`a{x=~"4|5"}`:                `a has no x that fits "4|5"`,
		`a{z="4"}`:                   `a has no z that fits "4"`,
		`sum by (y) (a)`:             "nothing in it has the label y",
		`a and on (z) a`:             "nothing in it has the label z",
		`rate(b_total)`:              "without a time",
		`max by (x) (a`:              "unparsed data",
		`max by (x) (max by (x) (a) or c{x="1"}) == 0.5`: "c is not exported",
	} {
		_, problems := query{"test", expr}.check(seen)
		if got := strings.Join(problems, "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// described are the names that a controller says its metrics have.
func described(t *testing.T) (names []string) {
	t.Helper()
	app := controller.New(controller.Settings{Deployment: name}, transform.NewRegistry("items"), nil, nil, controller.Options{}, zap.NewNop())
	ch := make(chan *prometheus.Desc, 1000)
	app.Metrics().Describe(ch)
	close(ch)
	for d := range ch {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		names = append(names, name)
	}
	return names
}
