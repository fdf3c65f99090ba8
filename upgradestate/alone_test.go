package upgradestate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNoGoroutines holds the package and those below it to what lets scripts/test run their
// tests without the race detector: they start no goroutine, and import nothing that is for
// several of them.
func TestNoGoroutines(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	seen := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		seen++
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if slices.Contains(strings.Split(name, "/"), "sync") || strings.HasSuffix(name, "synctest") {
				t.Errorf("%s imports %s", path, name)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if n, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine", files.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("%d files were seen", seen)
	}
}
