// Package docs_test keeps the pages in docs/ right: their Go is the source of compiled
// code, their lenses and configurations are read as the program reads them, and the
// records that they show are what the lenses make.
//
// In a page, a comment before a block says where it is from:
//
//	<!-- from: examples/secrets/stack.go StackV1 IsWrite -->   the source of these declarations
//	<!-- from: examples/secrets/secrets.yaml -->               the whole file
//	<!-- up: customers -->                                   JSON: a record, and what the lens of the kind makes of it
//	<!-- message: dbcontroller.v1.Location -->               JSON: an answer of the API, with all its fields
//	<!-- not run: WHY -->                                    of program.md and operations.md, whose blocks integration.TestGuideAsShown runs
//
// YAML begins with a comment that names its file, and the files of a page belong together.
// A block that begins with "$ dbcontroller lens" is what that prints. go test ./docs -update
// writes anew what is from somewhere, and what is printed.
package docs_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "dbcontroller.dev/gen/dbcontroller/v1" // the messages
	"dbcontroller.dev/integration/page"
)

var update = flag.Bool("update", false, "write anew what the pages have from elsewhere")

var pages = []string{"application.md", "library.md", "mongoose.md", "operations.md", "program.md", "transformers.md"}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCodeIsFromSomewhere: Go in a page is the source of code that is compiled and tested.
func TestCodeIsFromSomewhere(t *testing.T) {
	for _, name := range pages {
		text := read(t, name)
		all := page.Blocks(text)
		if len(all) == 0 {
			t.Errorf("%s: no blocks found", name)
		}
		for _, b := range slices.Backward(all) { // from the end, so that places stay right
			from, ok := strings.CutPrefix(b.Marker, "from: ")
			if !ok {
				if b.Language == "go" {
					t.Errorf("%s:%d: Go from nowhere: put it into code that is compiled, and name that in <!-- from: FILE NAME... --> before the block", name, b.Line)
				}
				continue
			}
			want, err := source(from)
			if err != nil {
				t.Errorf("%s:%d: %v", name, b.Line, err)
				continue
			}
			if *update {
				text = text[:b.Start] + want + text[b.End:]
			} else if diff := cmp.Diff(want, b.Text); diff != "" {
				t.Errorf("%s:%d: not what %s says; run go test ./docs -update (-want +got):\n%s", name, b.Line, from, diff)
			}
		}
		if *update {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// source is a file, or declarations of a Go file, methods as Type.Method.
func source(from string) (string, error) {
	parts := strings.Fields(from)
	path := filepath.Join("..", filepath.FromSlash(parts[0]))
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if len(parts) == 1 {
		return string(text), nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		return "", err
	}
	found := map[string]string{}
	for _, d := range file.Decls {
		for _, name := range declared(d) {
			from := d.Pos()
			if doc := docOf(d); doc != nil {
				from = doc.Pos()
			}
			found[name] = string(text[fset.Position(from).Offset:fset.Position(d.End()).Offset])
		}
	}
	var out []string
	for _, name := range parts[1:] {
		decl, ok := found[name]
		if !ok {
			return "", fmt.Errorf("%s declares no %s", parts[0], name)
		}
		if !slices.Contains(out, decl) {
			out = append(out, decl)
		}
	}
	code, err := format.Source([]byte(strings.Join(out, "\n\n") + "\n"))
	return string(code), err
}

func declared(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		of := d.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if generic, ok := of.(*ast.IndexExpr); ok {
			of = generic.X
		}
		return []string{fmt.Sprint(of, ".", d.Name.Name)}
	case *ast.GenDecl:
		var names []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
		return names
	}
	return nil
}

func docOf(d ast.Decl) *ast.CommentGroup {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Doc
	case *ast.GenDecl:
		return d.Doc
	}
	return nil
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestLinksLeadSomewhere: files and folders that the pages link to are there.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, name := range append([]string{"../README.md", "../ARCHITECTURE.md"}, pages...) {
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
	}
}

var namedPath = regexp.MustCompile("`([a-z][\\w.]*/[\\w./]+\\.(?:go|md|proto))`")

// TestNamedFilesAreThere: each path of a file in ARCHITECTURE.md is the end of one in the tree, from a
// folder on. Only a file's name without a folder is not checked.
func TestNamedFilesAreThere(t *testing.T) {
	var tree []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		tree = append(tree, filepath.ToSlash(path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := namedPath.FindAllStringSubmatch(read(t, "../ARCHITECTURE.md"), -1)
	if len(named) < 20 {
		t.Fatalf("found only %d paths", len(named))
	}
	for _, m := range named {
		if !slices.ContainsFunc(tree, func(path string) bool { return strings.HasSuffix(path, "/"+m[1]) }) {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", m[1])
		}
	}
}

// TestMessagesAreWhole: an answer of the API that a page shows has all fields that it comes
// with, and no other.
func TestMessagesAreWhole(t *testing.T) {
	shown := 0
	for _, name := range pages {
		for _, b := range page.Blocks(read(t, name)) {
			of, ok := strings.CutPrefix(b.Marker, "message: ")
			if !ok {
				continue
			}
			shown++
			kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(of))
			if err != nil {
				t.Fatalf("%s:%d: %v", name, b.Line, err)
			}
			m := kind.New().Interface()
			if err := protojson.Unmarshal([]byte(b.Text), m); err != nil {
				t.Errorf("%s:%d: %v", name, b.Line, err)
				continue
			}
			whole, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := errors.Join(json.Unmarshal(whole, &want), json.Unmarshal([]byte(b.Text), &got)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s:%d: not all of a %s (-message +page):\n%s", name, b.Line, of, diff)
			}
		}
	}
	if shown < 2 {
		t.Errorf("%d messages are shown, want the locations of two pages", shown)
	}
}
