package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notForUsers is what the comment of a package says that the guide does not list.
const notForUsers = "It is not for users and may change with any version."

// stableRow is a row of the guide's table of packages.
var stableRow = regexp.MustCompile("(?m)^\\| `dbcontroller\\.dev(?:/([a-z0-9/]+))?`")

// TestPackagesAreForUsersOrSaySo: a reader of a package learns whether it can be relied on.
// It is listed in the guide as stable, or it says that it is not. Programs, what is internal,
// what is generated, and the service that others make theirs have no need to.
func TestPackagesAreForUsersOrSaySo(t *testing.T) {
	t.Parallel()
	var stable []string
	for _, m := range stableRow.FindAllStringSubmatch(read(t, "library.md"), -1) {
		stable = append(stable, m[1])
	}
	comments := packageComments(t, "..")
	if len(stable) < 5 || len(comments) < 25 {
		t.Fatalf("%d packages are listed of %d: there have long been more", len(stable), len(comments))
	}
	for folder, comment := range comments {
		says := strings.Contains(comment, notForUsers)
		listed := slices.Contains(stable, folder)
		switch {
		case listed && says:
			t.Errorf("%s is listed in library.md, under Packages, and says that it is not for users", folder)
		case !listed && !says:
			t.Errorf("%s is neither listed in library.md, under Packages, nor does its comment say: %s", folder, notForUsers)
		}
	}
	for _, folder := range stable {
		if _, ok := comments[folder]; !ok && !strings.HasPrefix(folder, "gen/") {
			t.Errorf("library.md lists %s, which is no package that others can import", folder)
		}
	}
}

// packageComments are those of all packages that others can import, by folder.
func packageComments(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "internal" || name == "testdata" || name == "gen" || path == "../examples/starter/service") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil || file.Name.Name == "main" || ast.IsGenerated(file) {
			return err
		}
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root))
		folder = strings.TrimPrefix(folder, "/")
		out[folder] += strings.Join(strings.Fields(file.Doc.Text()), " ")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
