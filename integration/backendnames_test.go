package integration_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// backendNames are those of backends in a configuration, and what people call them.
var backendNames = []string{"mongo", "mongodb", "etcd"}

// knowBackends are the packages that may depend on which backend a database has: they read its
// configuration, open it, or are it.
var knowBackends = []string{"config", "internal/program/databases", "internal/store", "internal/coord"}

// TestNobodyAsksWhichBackend: what depends on a backend is decided behind databases.Space and its
// engine, by what it can do. So nothing compares the name of one.
func TestNobodyAsksWhichBackend(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(file, "../"))
		if d.IsDir() {
			if name := d.Name(); file != ".." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "node_modules", "gen"}, name) ||
				slices.ContainsFunc(knowBackends, func(p string) bool { return within(rel, p) }) || isTest(rel)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		files++
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, found := range comparedBackends(set, parsed) {
			t.Errorf("%s: ask what the database can do, in internal/program/databases, and not which backend it has", found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 { // as many have long existed
		t.Errorf("looked into %d files", files)
	}
}

// comparedBackends returns where a file compares names of backends.
func comparedBackends(set *token.FileSet, file *ast.File) (found []string) {
	is := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(e.Value)
			return err == nil && e.Kind == token.STRING && slices.Contains(backendNames, strings.TrimRight(text, ":/"))
		case *ast.SelectorExpr:
			return e.Sel.Name == "Backend"
		default:
			return false
		}
	}
	isNil := func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return ok && name.Name == "nil"
	}
	add := func(n ast.Node, yes bool) {
		if yes {
			at := set.Position(n.Pos())
			found = append(found, fmt.Sprintf("%s:%d", at.Filename, at.Line))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			add(n, (n.Op == token.EQL || n.Op == token.NEQ) && (is(n.X) && !isNil(n.Y) || is(n.Y) && !isNil(n.X)))
		case *ast.SwitchStmt:
			add(n, n.Tag != nil && is(n.Tag))
		case *ast.CaseClause:
			add(n, slices.ContainsFunc(n.List, is))
		case *ast.IndexExpr:
			add(n, is(n.Index))
		case *ast.ValueSpec: // a constant by which it could be compared
			add(n, slices.ContainsFunc(n.Values, is))
		case *ast.CompositeLit:
			_, mapped := n.Type.(*ast.MapType)
			for _, e := range n.Elts {
				pair, ok := e.(*ast.KeyValueExpr)
				add(e, mapped && ok && is(pair.Key))
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			pkg, ok := f.X.(*ast.Ident)
			add(n, ok && (pkg.Name == "strings" || pkg.Name == "slices") && slices.ContainsFunc(n.Args, is))
		}
		return true
	})
	return found
}

// TestComparedBackendsAreSeen is the check of the check.
func TestComparedBackendsAreSeen(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "f.go", `package f
func f(db DB, of map[string]int) {
	_ = db.Backend == "mongo"
	_ = "etcd" != name
	_ = db.Backend != other.Backend
	switch db.Backend {
	}
	switch name {
	case "mongodb":
	}
	_ = of["etcd"]
	_ = map[string]int{"mongo": 1}
	_ = strings.HasPrefix(place, "mongo:")
	const etcd = "etcd"
	_ = a.Backend == nil
	p.warn("etcd", "it is embedded")
	_ = db.Backend + ":" + db.Database
	_ = struct{ Backend string }{Backend: db.Backend}
}`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"f.go:3", "f.go:4", "f.go:5", "f.go:6", "f.go:9", "f.go:11", "f.go:12", "f.go:13", "f.go:14"}
	if diff := cmp.Diff(want, comparedBackends(set, file)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
