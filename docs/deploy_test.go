package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	"dbcontroller.dev/transform/lens"
)

// exposure is how systemd-analyze rates a unit, from 0 (safe) to 10.
var exposure = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

// TestUnits: systemd accepts the units of deploy/systemd, and rates them as docs/deploy.md says.
func TestUnits(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("../deploy/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatal(units, err)
	}
	commands := map[string]string{
		"dbcontroller.service":       "\nExecStart=/usr/bin/dbcontroller run --config /etc/dbcontroller/dbcontroller.yaml\n",
		"dbcontroller-proxy.service": "\nExecStart=/usr/bin/dbcontroller proxy --config /etc/dbcontroller/proxy.yaml\n",
	}
	analyze, err := exec.LookPath("systemd-analyze")
	for _, unit := range units {
		name := filepath.Base(unit)
		text := read(t, unit)
		for _, want := range []string{commands[name], "\nRestart=always\n", "\nRestartPreventExitStatus=78\n", "\nDynamicUser=yes\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, strings.TrimSpace(want))
			}
		}
		if err != nil {
			t.Log("systemd-analyze is not installed: the units were not checked by it")
			continue
		}
		// It looks for the program.
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/bin/dbcontroller", "/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), analyze, "verify", file).CombinedOutput(); err != nil || strings.Contains(string(out), name) { // #nosec G204 -- a test
			t.Errorf("%s: %v: %s", name, err, out)
		}
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", file).CombinedOutput() // #nosec G204 -- a test
		m := exposure.FindStringSubmatch(string(out))
		if m == nil {
			t.Logf("systemd-analyze cannot rate it: %v", err) // before version 250
			continue
		}
		// Later versions check more, and rate a little higher.
		if rate, err := strconv.ParseFloat(m[1], 64); err != nil || rate > 2 {
			t.Errorf("%s is rated %s", name, m[1])
		}
	}
}

// TestDeployedConfigurations: the program reads the configurations of the Compose file and of packages.
func TestDeployedConfigurations(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) { return "mongodb://127.0.0.1/?replicaSet=rs0", name == "MONGO_URI" }
	for _, file := range []string{"../deploy/compose/dbcontroller.yaml", "../deploy/packages/dbcontroller.example.yaml"} {
		if _, err := config.Load(file, env); err != nil {
			t.Error(err)
		}
	}
	for _, file := range []string{"../deploy/compose/proxy.yaml", "../deploy/packages/proxy.example.yaml"} {
		if _, err := config.LoadProxy(file, env); err != nil {
			t.Error(err)
		}
	}
	if _, err := lens.Parse("orders.yaml", []byte(read(t, "../deploy/compose/orders.yaml"))); err != nil {
		t.Error(err)
	}
}

// TestComposeImages: the Compose file has the databases that tests run against, and its Dockerfile the Go of go.mod.
func TestComposeImages(t *testing.T) {
	t.Parallel()
	tested := read(t, "../integration/containers/main.go")
	images := regexp.MustCompile(`(?m)^    image: (.+)$`).FindAllStringSubmatch(read(t, "../deploy/compose.yaml"), -1)
	if len(images) < 3 {
		t.Fatal(images)
	}
	for _, image := range images {
		if !strings.Contains(tested, strconv.Quote(image[1])) {
			t.Errorf("%s is not tested: integration/containers has others", image[1])
		}
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	if version == nil || !strings.Contains(read(t, "../deploy/Dockerfile"), "FROM golang:"+version[1]+" ") {
		t.Errorf("deploy/Dockerfile builds with another Go than go.mod has: %v", version)
	}
}
