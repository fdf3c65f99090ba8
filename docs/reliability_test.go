package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	tableRow = regexp.MustCompile(`(?m)^\| (.+) \| (.+) \| (.+) \|$`)
	testName = regexp.MustCompile("`([A-Za-z0-9_/]+)\\.(Test[A-Za-z0-9_]+)`")
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// TestReliabilityRowsAreProved: each row of the tables names tests that exist, and quotes
// messages, "…" for what differs, that the program or a test of it has.
func TestReliabilityRowsAreProved(t *testing.T) {
	tests, texts := inventory(t)
	rows := tableRow.FindAllStringSubmatch(read(t, "reliability.md"), -1)
	rows = slices.DeleteFunc(rows, func(row []string) bool { return strings.HasPrefix(row[1], "---") || row[3] == "test" })
	if len(rows) < 50 {
		t.Fatalf("found %d rows, there have long been more", len(rows))
	}
	for _, row := range rows {
		what, happens, proof := row[1], row[2], row[3]
		named := testName.FindAllStringSubmatch(proof, -1)
		if len(named) == 0 {
			t.Errorf("%s: names no test, as `folder.TestName`", what)
		}
		for _, n := range named {
			if !slices.Contains(testsOf(tests, n[1]), n[2]) {
				t.Errorf("%s: %s has no test %s", what, n[1], n[2])
			}
		}
		for _, q := range quoted.FindAllStringSubmatch(happens, -1) {
			for _, part := range strings.Split(q[1], "…") {
				if part = strings.TrimSpace(part); part != "" && !strings.Contains(texts, part) {
					t.Errorf("%s: nothing says %q", what, part)
				}
			}
		}
	}
}

// testsOf are the tests of a folder that the end of its path names, as long as no other one ends so.
func testsOf(tests map[string][]string, name string) (found []string) {
	if exact, ok := tests[name]; ok {
		return exact
	}
	for folder, names := range tests {
		if strings.HasSuffix(folder, "/"+name) {
			if found != nil {
				return nil
			}
			found = names
		}
	}
	return found
}

// inventory is the tests of each folder, and all texts in Go, a line each.
func inventory(t *testing.T) (tests map[string][]string, texts string) {
	t.Helper()
	tests = map[string][]string{}
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "reliability_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := textOf(e)
			if ok {
				all.WriteString(text + "\n")
			}
			return !ok
		})
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../"))
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[folder] = append(tests[folder], f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, all.String()
}

// textOf is what a literal says, or several that are added.
func textOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		x, isX := textOf(e.X)
		y, isY := textOf(e.Y)
		return x + y, e.Op == token.ADD && isX && isY
	}
	return "", false
}
