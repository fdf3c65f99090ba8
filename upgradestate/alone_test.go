package upgradestate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestNoGoroutines holds the packages that scripts/test calls pure, and those below them, to what
// lets their tests run without the race detector: they start no goroutine, and import nothing that
// is for several of them.
func TestNoGoroutines(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "scripts", "test"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^pure=\(([^)]+)\)$`).FindSubmatch(script)
	if list == nil {
		t.Fatal("scripts/test has no list of pure packages")
	}
	pure := strings.Fields(string(list[1]))
	if !slices.Contains(pure, "dbcontroller.dev/upgradestate") {
		t.Errorf("scripts/test runs this package with the race detector: pure are %v", pure)
	}
	for _, p := range pure {
		alone(t, filepath.Join("..", filepath.FromSlash(strings.TrimPrefix(p, "dbcontroller.dev/"))))
	}
}

// alone fails for goroutines in the files below a folder, and for a folder without a test.
func alone(t *testing.T, folder string) {
	t.Helper()
	files := token.NewFileSet()
	tests := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			tests++
		}
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
	if tests == 0 {
		t.Errorf("%s has no tests", folder)
	}
}
