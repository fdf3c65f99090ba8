// Package chart_test checks the Helm chart in deploy/helm by Helm's own library, without a cluster.
//
// The folder is a module of its own: no user of dbcontroller needs Helm. Begin to read at render.
package chart_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"sigs.k8s.io/yaml"
)

const (
	dir  = "../../deploy/helm/dbcontroller"
	page = "helm.md"
)

var update = flag.Bool("update", false, "copy the alert rules and the dashboard into the chart")

// load returns the chart, and values of testdata, or the example in docs/helm.md.
func load(t *testing.T, name string) (*chart.Chart, map[string]any) {
	t.Helper()
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if name == page {
		file = filepath.Join("../../docs", page)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if name == page {
		_, after, _ := strings.Cut(string(text), "```yaml\n")
		block, _, found := strings.Cut(after, "```")
		if !found {
			t.Fatal(page, "has no example of values")
		}
		text = []byte(block)
	}
	values, err := chartutil.ReadValues(text)
	if err != nil {
		t.Fatal(err)
	}
	return c, values
}

// render returns the manifests of a release named release, as 'helm template' prints them.
func render(c *chart.Chart, values map[string]any) (map[string]string, error) {
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "release", Namespace: "shop", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// TestLint: the linter of Helm finds nothing, whatever is on.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, name := range names(t) {
		_, values := load(t, name)
		for _, m := range lint.AllWithKubeVersion(dir, values, "shop", nil).Messages {
			// A chart without an icon works.
			if !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestFiles: the chart has the alert rules and the dashboard of deploy.
func TestFiles(t *testing.T) {
	t.Parallel()
	for file, origin := range map[string]string{
		"dbcontroller.rules.yaml": "../../deploy/prometheus/dbcontroller.rules.yaml",
		"dbcontroller.json":       "../../deploy/grafana/dbcontroller.json",
	} {
		file = filepath.Join(dir, "files", file)
		want, err := os.ReadFile(origin)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s differs from %s (%v): run 'go -C integration/chart test -run TestFiles . -update'", file, origin, err)
		}
	}
}

// TestRefused: wrong values are refused, with a message that has the value's path and no secret.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base, set, want string
	}{
		{"minimal", "image: {repository: null}", "/image"},
		{"minimal", "image: {repository: ''}", "/image/repository"},
		{"minimal", "image: {repository: 'a b'}", "/image/repository"},
		{"minimal", "image: {digest: latest}", "/image/digest"},
		{"minimal", "image: {pullPolicy: Sometimes}", "/image/pullPolicy"},
		{"minimal", "config: {deployment: null}", "/config/deployment"},
		{"minimal", "config: {etcd: null}", "/config/etcd"},
		{"minimal", "config: {etcd: {endpoints: []}}", "/config/etcd/endpoints"},
		{"minimal", "config: {dbs: []}", "/config/dbs"},
		{"minimal", "config: {dbs: [{backend: mysql, namespace: a, apiVersion: v1}]}", "/config/dbs/0/backend"},
		{"minimal", "config: {dbs: [{backend: mongo, namespace: a, apiVersion: v1, colour: red}]}", "'colour' not allowed"},
		{"minimal", "config: {deploymnet: a}", "'deploymnet' not allowed"},
		{"minimal", "config: {dataDir: /data}", "'dataDir' not allowed"},
		{"minimal", "config: {api: {listen: '0.0.0.0:1'}}", "'listen' not allowed"},
		{"minimal", "config: {operator: {metrics: '0.0.0.0:1'}}", "'metrics' not allowed"},
		{"minimal", "config: {access: {tls: {cert: a}}}", "'tls' not allowed"},
		{"minimal", "config: {kinds: [{from: a, to: a, lens: lenses/a.yaml}]}", "lenses/a.yaml is not in lenses"},
		{"minimal", "lenses: {../../x: 'lens: 1'}", "'../../x' not allowed"},
		{"minimal", "lenses: {a.yaml: {lens: 1}}", "/lenses/a.yaml"},
		{"minimal", "replica: 3", "'replica' not allowed"},
		{"minimal", "replicas: 0", "/replicas"},
		{"minimal", "replicas: '2'", "/replicas"},
		{"minimal", "insecure: 'yes'", "/insecure"},
		{"minimal", "insecure: false", "tls.secret is empty"},
		{"minimal", "tls: {secret: a}", "insecure is true and tls.secret is set"},
		{"minimal", "tls: {clientCA: true}", "tls.clientCA needs tls.secret"},
		{"minimal", "tls: {secret: '../a'}", "/tls/secret"},
		{"minimal", "secretFiles: ['a/../b']", "/secretFiles/0"},
		{"minimal", "secretFiles: [a, a]", "/secretFiles"},
		{"minimal", "env: [{name: MONGO_URI, value: 'mongodb://hidden'}]", "/env/0"},
		{"minimal", "env: [{name: 'A-B', secret: a, key: b}]", "/env/0/name"},
		{"minimal", "extraArgs: [etcd]", "/extraArgs/0"},
		{"minimal", "terminationGracePeriodSeconds: 5", "/terminationGracePeriodSeconds"},
		{"minimal", "podDisruptionBudget: {maxUnavailable: 0}", "/podDisruptionBudget/maxUnavailable"},
		{"minimal", "serviceAccount: {create: false}", "give serviceAccount.name"},
		{"minimal", "nameOverride: \"a\\nb: c\"", "/nameOverride"},
		{"minimal", "config: {dbs: [{backend: mongo, namespace: a, apiVersion: v1, mongo: {endpoint: 'mongodb://ann:hidden@db/'}}]}", "config has a connection string with a password"},
		{"minimal", "config: {hooks: [{name: a, url: 'https://a/', secret: hiddenhiddenhidden}]}", "config.hooks[0].secret is in the values"},
		{"minimal", "proxy: {enabled: true}", "proxy.tls.secret is empty"},
		{"minimal", "proxy: {enabled: true, tls: {secret: a}}", "proxy.config: give upstream and deployments"},
		{"proxy", "proxy: {tls: {clientCA: false}}", "name users, or set proxy.tls.clientCA"},
		{"proxy", "proxy: {config: {listen: '0.0.0.0:1'}}", "'listen' not allowed"},
		{"proxy", "proxy: {config: {upstream: 'mongodb+srv://ann:hidden@db/'}}", "proxy.config has a connection string with a password"},
		{"full", "monitoring: {serviceMonitor: {token: {secret: ''}}}", "Prometheus needs token.secret"},
	} {
		chart, values := load(t, c.base+".yaml")
		var set map[string]any
		if err := yaml.Unmarshal([]byte(c.set), &set); err != nil {
			t.Fatal(c.set, err)
		}
		_, err := render(chart, chartutil.MergeTables(set, values))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden") && !strings.Contains(c.set, "env:") {
			t.Errorf("%s with %s: %v, want %q", c.base, c.set, err, c.want)
		}
	}
}

// TestDefaults: what must be given has no default.
func TestDefaults(t *testing.T) {
	t.Parallel()
	c, _ := load(t, "minimal.yaml")
	_, err := render(c, nil)
	for _, want := range []string{"/image/repository", "'deployment', 'etcd', 'dbs'"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// names returns the files of testdata, and the page.
func names(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil || len(entries) < 3 {
		t.Fatal(entries, err)
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return append(out, page)
}

// write writes files below a new folder, and returns the folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !fs.ValidPath(name) {
			t.Fatal(fmt.Errorf("%q is no path", name))
		}
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
