package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSeveralFiles: the files of one process have one deployment each, and agree in what the process has
// once. The refusal is one line with the file, and nothing has started.
func TestSeveralFiles(t *testing.T) {
	t.Parallel()
	text := func(deployment, more string) string {
		return fmt.Sprintf(`deployment: services/shop/deployments/%s
%s
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://db"}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://db"}}
`, deployment, more)
	}
	for name, tc := range map[string]struct {
		second string
		want   string // of the error; empty: none
	}{
		"another deployment":  {text("b", "copy: {workers: 2}"), ""},
		"the same deployment": {text("a", ""), `b.yaml: deployment: "services/shop/deployments/a": want another one than in a.yaml`},
		"another etcd":        {text("b", `etcd: {endpoints: ["db:2379"]}`), "b.yaml: etcd: want the same as in a.yaml: the deployments of one process share it"},
		"another listener":    {text("b", `api: {listen: "127.0.0.1:1"}`), "b.yaml: api.listen: want the same as in a.yaml"},
		"other applications":  {text("b", `api: {applications: "127.0.0.1:1"}`), "b.yaml: api.applications: want the same"},
		"another page":        {text("b", "api: {page: false}"), "b.yaml: api.page: want the same"},
		"other controllers":   {text("b", `api: {controllers: ["http://c:1"]}`), "b.yaml: api.controllers: want the same"},
		"another port":        {text("b", `operator: {listen: "127.0.0.1:1"}`), "b.yaml: operator.listen: want the same"},
		"other metrics":       {text("b", `operator: {metrics: "127.0.0.1:1"}`), "b.yaml: operator.metrics: want the same"},
		"profiles":            {text("b", "operator: {pprof: true}"), "b.yaml: operator.pprof: want the same"},
		"traces":              {text("b", `operator: {traces: {endpoint: "http://t:4317"}}`), "b.yaml: operator.traces: want the same"},
		"a data directory":    {text("b", "dataDir: elsewhere"), "b.yaml: dataDir: want the same"},
		"other checks":        {text("b", `rollouts: {checks: [{name: a, command: [/bin/true]}]}`), "b.yaml: rollouts.checks: want the same"},
		"another turn":        {text("b", `copy: {deployments: 2}`), "b.yaml: copy.deployments: want the same"},
		"access":              {text("b", `access: {anonymous: viewer}`), "b.yaml"},
		"a mistake":           {text("b", "copy: {workers: many}"), `b.yaml:2: copy.workers: "many": want a whole number`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a.yaml"), text("a", ""))
			write(t, filepath.Join(dir, "b.yaml"), tc.second)
			write(t, filepath.Join(dir, "notes.txt"), "no configuration")
			p, err := Load(Flags{Configs: []string{dir}, LogLevel: "info"})
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if len(p.All) != 2 || p.Config.Deployment != "services/shop/deployments/a" || p.All[1].Copy.Workers != 2 {
					t.Errorf("loaded %+v", p.All)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
	// Files by name, and one of them alone.
	dir := t.TempDir()
	write(t, filepath.Join(dir, "one.yaml"), text("a", ""))
	if p, err := Load(Flags{Configs: []string{filepath.Join(dir, "one.yaml")}, LogLevel: "info"}); err != nil || len(p.All) != 1 {
		t.Errorf("one file: %v", err)
	}
	if _, err := Load(Flags{Configs: []string{t.TempDir()}, LogLevel: "info"}); err == nil || !strings.Contains(err.Error(), "the folder has no *.yaml") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Load(Flags{LogLevel: "info"}); err == nil {
		t.Error("no file is accepted")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
