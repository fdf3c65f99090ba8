package docs_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/program/dbcontroller/cli"
)

var (
	// saidCall is a call of the program that a message names.
	saidCall = regexp.MustCompile("['`](?:dbcontroller|bin/controller) ([a-z][^'`]*)['`]")
	// saidMethod is a method that a text names, behind the service that has it.
	saidMethod = regexp.MustCompile(`\b(\w+)\.(v\d+\w*)\.(\w+)/([A-Z][a-z]\w*)`)
	inProto    = regexp.MustCompile(`(?m)^package ([\w.]+);|^service (\w+)|^\s+rpc (\w+)`)
)

// methods are those of all services that the project declares, with their packages.
func methods(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, dir := range []string{"../proto", "../examples/starter/service/proto"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".proto" {
				return err
			}
			text, err := os.ReadFile(path)
			var pkg, service string
			for _, m := range inProto.FindAllStringSubmatch(string(text), -1) {
				switch {
				case m[1] != "":
					pkg = m[1]
				case m[2] != "":
					service = m[2]
				default:
					out[pkg+"."+service+"/"+m[3]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestTextsNameWhatIsThere: each command, flag and method that a message, a help text or a comment
// of the code names, and each method that a page names, is one that there is.
func TestTextsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	root := cli.Program{Etcd: func(context.Context, string, *zap.Logger) ([]string, func() error, error) {
		return nil, nil, errors.New("no command runs here")
	}}.Command()
	known := methods(t)
	calls, named := 0, 0
	text := func(at, text string, message bool) {
		for _, m := range saidMethod.FindAllStringSubmatch(text, -1) {
			named++
			if !known[m[1]+"."+m[2]+"."+m[3]+"/"+m[4]] {
				t.Errorf("%s names %s, and there is no such method", at, m[0])
			}
		}
		if !message {
			return
		}
		for _, m := range saidCall.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "%") {
				continue
			}
			calls++
			if err := wrongCall(root, strings.NewReplacer("%s", "X", "%q", "X", "%d", "1", "%v", "X").Replace(m[1])); err != nil {
				first, _, _ := strings.Cut(err.Error(), "\n")
				t.Errorf("%s names %q: %s", at, m[0], first)
			}
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); name == "gen" || name == "node_modules" || name == "bin" || name == "testdata" || path != ".." && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		case filepath.Ext(path) == ".md" && d.Name() != "CHANGELOG.md" || filepath.Ext(path) == ".yaml" || filepath.Ext(path) == ".proto":
			page, err := os.ReadFile(path)
			text(path, string(page), false)
			return err
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, group := range f.Comments {
			text(files.Position(group.Pos()).String(), group.Text(), false)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				value, err := strconv.Unquote(lit.Value)
				if err == nil {
					text(files.Position(lit.Pos()).String(), value, true)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls < 30 || named < 5 {
		t.Errorf("%d calls and %d methods were found, there are more", calls, named)
	}
}
