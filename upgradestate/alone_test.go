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

// TestNoGoroutines holds the package and those below it, and the others that scripts/test calls
// pure, to what lets their tests run without the race detector: they start no goroutine, and
// import nothing that is for several of them.
func TestNoGoroutines(t *testing.T) {
	t.Parallel()
	for folder, least := range map[string]int{".": 10, "../examples/packages": 4, "../transform/lens/lint": 15} {
		alone(t, folder, least)
	}
}

// alone fails for what is in the files below a folder, and if they are fewer than there should be.
func alone(t *testing.T, folder string, least int) {
	t.Helper()
	files := token.NewFileSet()
	seen := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
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
	if seen < least {
		t.Errorf("%s: %d files were seen", folder, seen)
	}
}
