package integration_test

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

	"dbcontroller.dev/upgradestate"
)

// blockerSources parses the packages that make or show reasons why a switch waits.
func blockerSources(t *testing.T) (product, tests map[string]*ast.File) {
	t.Helper()
	product, tests = map[string]*ast.File{}, map[string]*ast.File{}
	for _, dir := range []string{"upgradestate", "syncer", "internal/engine", "internal/control", "internal/program/dbcontroller"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if strings.HasSuffix(path, "_test.go") {
				tests[path] = f
			} else {
				product[path] = f
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return product, tests
}

// nameOf is the name of an identifier, with or without a package.
func nameOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.SelectorExpr:
		return n.Sel.Name
	default:
		return ""
	}
}

// TestEveryBlockCodeIsMade: each code of a reason why a switch waits is in the registry, product
// code makes it, and a test of that package names it.
func TestEveryBlockCodeIsMade(t *testing.T) {
	t.Parallel()
	product, tests := blockerSources(t)
	registry := filepath.Join("..", "upgradestate", "blocker.go")
	codes := map[string]upgradestate.BlockCode{}
	ast.Inspect(product[registry], func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && nameOf(v.Type) == "BlockCode" {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes[v.Names[0].Name] = upgradestate.BlockCode(text)
		}
		return true
	})
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for code := range upgradestate.BlockCodes {
		if !strings.Contains(string(page), "| `"+string(code)+"` | ") {
			t.Errorf("docs/operations.md does not explain %s", code)
		}
	}
	if len(codes) != len(upgradestate.BlockCodes) || len(codes) < 20 {
		t.Errorf("%d constants and %d codes in the registry", len(codes), len(upgradestate.BlockCodes))
	}
	used := func(files map[string]*ast.File) map[string]bool {
		names := map[string]bool{}
		for path, f := range files {
			if path == registry {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if name := nameOf(n); codes[name] != "" {
					names[name] = true
				}
				return true
			})
		}
		return names
	}
	made, tested := used(product), used(tests)
	for name, code := range codes {
		if upgradestate.BlockCodes[code].Act == "" {
			t.Errorf("%s is not in the registry, or nothing resolves it", name)
		}
		if !made[name] {
			t.Errorf("no code makes %s", name)
		}
		if !tested[name] {
			t.Errorf("no test makes %s", name)
		}
	}
}

// TestNoReasonWithoutACode: a reason is made as a Blocker with a code, and one function alone adds
// to what is published.
func TestNoReasonWithoutACode(t *testing.T) {
	t.Parallel()
	product, _ := blockerSources(t)
	made := 0
	for path, f := range product {
		for _, decl := range f.Decls {
			fn, _ := decl.(*ast.FuncDecl)
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					if nameOf(n.Type) != "Blocker" || len(n.Elts) == 0 {
						return true
					}
					made++
					coded := slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
						kv, ok := e.(*ast.KeyValueExpr)
						return ok && (nameOf(kv.Key) == "Code" || nameOf(kv.Key) == "Text" && nameOf(kv.Value) == "ForSwitch")
					})
					if !coded {
						t.Errorf("%s makes a reason without a code", path)
					}
				case *ast.AssignStmt:
					if strings.Contains(path, "switchover") && nameOf(n.Lhs[0]) == "WaitsFor" && fn.Name.Name != "block" && fn.Name.Name != "publish" {
						t.Errorf("%s: %s adds a reason without a code", path, fn.Name.Name)
					}
				}
				return true
			})
		}
	}
	if made < 12 {
		t.Errorf("%d reasons are made: the test looks at the wrong places", made)
	}
}

// TestAlertsLeaveOutWork: the alert of a switch that waits leaves out those reasons alone that are
// work under way, or an operator's own wish.
func TestAlertsLeaveOutWork(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../deploy/prometheus/dbcontroller.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	left := regexp.MustCompile(`reason!~"([^"]*)"`).FindSubmatch(rules)
	if left == nil {
		t.Fatal("no alert leaves out a reason")
	}
	var want []string
	for code, r := range upgradestate.BlockCodes {
		if r.Work {
			want = append(want, string(code))
		}
	}
	slices.Sort(want)
	if got := string(left[1]); got != strings.Join(want, "|") {
		t.Errorf("left out are %s, want %s", got, strings.Join(want, "|"))
	}
}
