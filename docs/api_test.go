package docs_test

import (
	"bytes"
	stdcmp "cmp"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module is the path of this project's packages.
const module = "dbcontroller.dev"

// TestStableAPI: what the packages export that library.md calls stable is as testdata/api has
// it, so that nothing is changed or taken away unseen. What has types of other packages in it is
// not stable, whatever it is in, and the guide names it.
func TestStableAPI(t *testing.T) {
	t.Parallel()
	guide := read(t, "library.md")
	stable := []string{}
	for _, m := range stableRow.FindAllStringSubmatch(guide, -1) {
		if !strings.HasPrefix(m[1], "gen/") { // that is the API's definition
			stable = append(stable, m[1])
		}
	}
	if len(stable) < 10 {
		t.Fatalf("%d packages are listed, there have long been more", len(stable))
	}
	var unstable []string
	for _, folder := range stable {
		p := exported(t, folder, stable)
		unstable = append(unstable, p.unstable...)
		file := filepath.Join("testdata", "api", stdcmp.Or(strings.ReplaceAll(folder, "/", "."), module)+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(p.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(p.text, "\n")); err != nil || diff != "" {
			t.Errorf("%s exports something else than before; go test ./docs -run TestStableAPI -update if nobody can miss it (-before +now): %v\n%s", stdcmp.Or(folder, module), err, diff)
		}
	}
	named := regexp.MustCompile(`(?m)^Not stable are: (.*)$`).FindStringSubmatch(guide)
	if named == nil {
		t.Fatal("library.md does not say what of the stable packages is not")
	}
	var says []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(named[1], -1) {
		says = append(says, m[1])
	}
	slices.Sort(unstable)
	slices.Sort(says)
	if diff := cmp.Diff(unstable, says); diff != "" {
		t.Errorf("what has types of packages that may change (-is +library.md says):\n%s", diff)
	}
}

// api is what a package exports.
type api struct {
	text     string   // without comments and values, sorted
	unstable []string // what has types of packages that are not stable
}

func exported(t *testing.T, folder string, stable []string) api {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(folder), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out api
	var decls []string
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		foreign := unstableImports(file, stable)
		if !ast.FileExports(file) {
			continue
		}
		for _, d := range file.Decls {
			for _, one := range single(d) {
				name, parts := named(one)
				if name == "" {
					continue
				}
				var text bytes.Buffer
				if err := printer.Fprint(&text, set, one); err != nil {
					t.Fatal(err)
				}
				decls = append(decls, strings.ReplaceAll(text.String(), "\n\n", "\n")+"\n")
				for part, node := range parts {
					if mentions(node, foreign) {
						out.unstable = append(out.unstable, file.Name.Name+"."+part)
					}
				}
			}
		}
	}
	slices.Sort(decls)
	out.text = strings.Join(decls, "")
	return out
}

// unstableImports are the names by which a file knows packages of this project that may change.
func unstableImports(file *ast.File, stable []string) []string {
	var names []string
	for _, i := range file.Imports {
		at, _ := strconv.Unquote(i.Path.Value)
		folder, ours := strings.CutPrefix(at, module+"/")
		if !ours || strings.HasPrefix(folder, "gen/") || slices.Contains(stable, folder) {
			continue
		}
		name := path.Base(at)
		if i.Name != nil {
			name = i.Name.Name
		}
		names = append(names, name)
	}
	return names
}

// single takes declarations apart, except for constants, whose values follow from each other, and
// removes what is not for users: imports, values of variables, bodies.
func single(d ast.Decl) []ast.Decl {
	switch d := d.(type) {
	case *ast.FuncDecl:
		d.Body = nil
	case *ast.GenDecl:
		switch d.Tok {
		case token.IMPORT:
			return nil
		case token.CONST:
			return []ast.Decl{d}
		}
		var out []ast.Decl
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				v.Values = nil
			}
			out = append(out, &ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{spec}})
		}
		return out
	}
	return []ast.Decl{d}
}

// named is what a declaration is called, empty: nothing that others can reach, and its parts
// that can be left out one by one: the fields of a struct, and itself otherwise.
func named(d ast.Decl) (string, map[string]ast.Node) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			of := d.Recv.List[0].Type
			for {
				switch on := of.(type) {
				case *ast.StarExpr:
					of = on.X
					continue
				case *ast.IndexExpr:
					of = on.X
					continue
				case *ast.IndexListExpr:
					of = on.X
					continue
				}
				break
			}
			id, ok := of.(*ast.Ident)
			if !ok || !id.IsExported() {
				return "", nil
			}
			name = id.Name + "." + name
		}
		return name, map[string]ast.Node{name: d.Type}
	case *ast.GenDecl:
		if ts, ok := d.Specs[0].(*ast.TypeSpec); ok {
			fields, isStruct := ts.Type.(*ast.StructType)
			if !isStruct {
				return ts.Name.Name, map[string]ast.Node{ts.Name.Name: ts.Type}
			}
			parts := map[string]ast.Node{}
			for _, f := range fields.Fields.List {
				if f.Names == nil { // embedded
					parts[ts.Name.Name] = f.Type
				}
				for _, n := range f.Names {
					parts[ts.Name.Name+"."+n.Name] = f.Type
				}
			}
			return ts.Name.Name, parts
		}
		if v, ok := d.Specs[0].(*ast.ValueSpec); ok {
			if v.Type == nil {
				return v.Names[0].Name, nil
			}
			return v.Names[0].Name, map[string]ast.Node{v.Names[0].Name: v.Type}
		}
	}
	return "", nil
}

func mentions(n ast.Node, packages []string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains(packages, id.Name) {
				found = true
			}
		}
		return !found
	})
	return found
}
