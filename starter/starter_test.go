package starter

import (
	"bytes"
	"go/format"
	"os"
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
		files, err := Write(dir, module, "v1.2.3")
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
