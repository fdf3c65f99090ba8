package docs_test

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGodocIsCompiled: Go in a doc comment is part of a test of its package, line by line, so that the
// compiler has seen it. An Example is the place for it.
func TestGodocIsCompiled(t *testing.T) {
	t.Parallel()
	found := 0
	for _, folder := range folders(t) {
		blocks, tests := goBlocks(t, folder)
		for _, b := range blocks {
			if found++; !strings.Contains(tests, lined(b.text)) {
				t.Errorf("%s: no test of the package has this code: put it into an Example, as it stands here:\n%s", b.at, b.text)
			}
		}
	}
	if found == 0 {
		t.Error("no Go is found in doc comments, and package appclient has some")
	}
}

// TestGoIsKnown: what the test above takes for Go, also where it does not parse.
func TestGoIsKnown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"app, err := appclient.Open(ctx)\nerr = app.Close(ctx)":     true,
		"type T struct{ A int }\n\nfunc (t T) B() int { return 1 }": true,
		"app, err := appclient.Open(ctx":                            true, // a misprint
		"return fn(x":                                               true,
		"typed.Rename(\"a\", \"b\"),":                               true,
		"state == \"ACTIVE\" && labels.tier in [\"web\"]":           false,
		"lens: 1\noperations:\n  - rename: {from: a, to: b}":        false,
		"before the flip    both marks: \"from epoch N+1 on\"":      false,
		"dbcontroller run --config shop.yaml":                       false,
	} {
		if isGo(text) != want {
			t.Errorf("%q: Go %t, want %t", text, !want, want)
		}
	}
}

// folders are those of the module that have Go which people have written.
func folders(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		switch name := e.Name(); {
		case path == "..":
		case name == "gen", name == "testdata", name == "node_modules", strings.HasPrefix(name, "."):
			return filepath.SkipDir
		}
		all = append(all, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// block is code in a doc comment.
type block struct{ at, text string }

// goBlocks returns the Go in the comments of a folder's files, and the text of its tests.
func goBlocks(t *testing.T, folder string) (blocks []block, tests string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			tests += lined(read(t, name)) + "\n"
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range file.Comments {
			for _, text := range codeOf(c) {
				if isGo(text) {
					blocks = append(blocks, block{set.Position(c.Pos()).String(), text})
				}
			}
		}
	}
	return blocks, tests
}

// codeOf are the blocks of code in a comment, in its lists too.
func codeOf(c *ast.CommentGroup) (all []string) {
	var of func(content []comment.Block)
	of = func(content []comment.Block) {
		for _, b := range content {
			switch b := b.(type) {
			case *comment.Code:
				all = append(all, b.Text)
			case *comment.List:
				for _, item := range b.Items {
					of(item.Content)
				}
			}
		}
	}
	of(new(comment.Parser).Parse(c.Text()).Content)
	return all
}

// isGo reports whether text is Go: it parses, or has what only Go has. Parts of calls and literals
// parse as those.
func isGo(text string) bool {
	for _, as := range []string{"package p\n" + text, "package p\nfunc _() {\n" + text + "\n}", "package p\nvar _ = f(\n" + strings.TrimSuffix(strings.TrimSpace(text), ",") + ",\n)"} {
		if _, err := parser.ParseFile(token.NewFileSet(), "", as, parser.SkipObjectResolution); err == nil {
			return true
		}
	}
	return onlyGo.MatchString(text)
}

var onlyGo = regexp.MustCompile(`(?m):= |\bfunc[ (]|^\s*(return|defer|import|package) |\berr\b`)

// lined is text without its indentation and its blank lines.
func lined(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
