package starter

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/config"
)

// TestWritten: what is written is formatted as the generator and gofmt would have it, whatever the
// module is called, and what processes leave is no part of it.
func TestWritten(t *testing.T) {
	t.Parallel()
	for _, module := range []string{"tasks", "example.com/tasks", "zz.example/a"} {
		dir := filepath.Join(t.TempDir(), "service")
		files, err := Write(dir, "tasks", module, "v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		ignored, err := os.ReadFile(filepath.Join(dir, ".gitignore"))
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(filepath.Join(dir, "config.yaml"), func(string) (string, bool) { return "mongodb://db.example.com", true })
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range []string{"bin", filepath.Base(cfg.DataDir)} {
			if !slices.Contains(strings.Fields(string(ignored)), "/"+left+"/") {
				t.Errorf("%s: .gitignore has %q, and processes leave %s", module, ignored, left)
			}
		}
		code := 0
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(name) != ".go" {
				continue
			}
			code++
			if want, err := format.Source(text); err != nil || !bytes.Equal(text, want) {
				t.Errorf("%s: %s is not formatted, %v", module, name, err)
			}
		}
		if code == 0 {
			t.Errorf("%s: no Go code", module)
		}
	}
}

// TestName: a service has the name that it is asked for, in its packages, messages, deployment and
// README. It builds, and its tests pass.
func TestName(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"", "Shop", "my-shop", "1shop", "type", "main", "dbcontroller", strings.Repeat("x", 41)} {
		dir := filepath.Join(t.TempDir(), "service")
		if _, err := Write(dir, wrong, "example.com/shop", "latest"); err == nil {
			t.Errorf("%q names a service", wrong)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: something was written", wrong)
		}
	}
	if testing.Short() {
		t.Skip("builds all that a service links")
	}
	dir := filepath.Join(t.TempDir(), "shop")
	files, err := Write(dir, "shop", "example.com/shop", "latest")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"shop/service.go", "proto/shop/v1/tasks.proto", "gen/shop/v2/tasks.pb.go", "gen/shop/v2/shopv2connect/tasks.connect.go"} {
		if !slices.Contains(files, want) {
			t.Errorf("there is no %s in %v", want, files)
		}
	}
	for file, want := range map[string]string{
		"config.yaml": "services/shop.example.com/deployments/local", "README.md": "shop.v1.TaskService/CreateTask", "shop/service.go": `Name: "shop"`,
		"generate": "gen/shop/$version;shop$version", "proto/shop/v2/tasks.proto": "package shop.v2;",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q, %v", file, want, err)
		}
	}
	// The modules that this one requires serve, so that nothing is fetched.
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	requires := strings.Replace(string(mod), "module dbcontroller.dev", "module example.com/shop", 1) +
		"\nrequire dbcontroller.dev v0.0.0\n\nreplace dbcontroller.dev => " + root + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(requires), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "./...")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -count=1 -vet=off -ldflags=-s", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok  \texample.com/shop/shop") {
		t.Errorf("%v\n%s", err, out)
	}
}
