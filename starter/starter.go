// Package starter is the service that 'dbcontroller init service' writes: small, in two
// versions, with tests that pass. What it writes is what stands below service/, which is built
// and tested with everything else, so that it cannot grow old; only the paths of its imports
// are changed.
//
// It does not know how to make modules or fetch any.
//
// It is not for users and may change with any version.
package starter

import (
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed service
var files embed.FS

// here is what the packages of the service are called in this module.
const here = "dbcontroller.dev/starter/service"

// goMod is the module of a written service. What it requires, go get adds.
const goMod = `module %s

go 1.26.0
`

// gitignore is what processes and builds leave in the folder.
const gitignore = "/bin/\n/data/\n"

// Write writes a service of a name into a folder that is not there yet, or is empty, as a module,
// and returns the names of its files. version is what README says to get of this library.
func Write(dir, name, module, version string) ([]string, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return nil, fmt.Errorf("%s is not empty: name a folder that is not there yet", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var written []string
	for _, f := range []struct{ name, text string }{{"go.mod", fmt.Sprintf(goMod, module)}, {".gitignore", gitignore}} {
		written = append(written, f.name)
		if err := put(filepath.Join(dir, f.name), f.text); err != nil {
			return nil, err
		}
	}
	err := fs.WalkDir(files, "service", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(file)
		if err != nil {
			return err
		}
		rel := named(strings.TrimPrefix(file, "service/"), name)
		made := string(text)
		if path.Ext(rel) == ".go" {
			if made, err = renamed(made, name); err != nil {
				return fmt.Errorf("%s: %w", rel, err)
			}
		} else {
			made = named(made, name)
		}
		written = append(written, rel)
		made = Text(made, module, version)
		if path.Ext(rel) == ".go" {
			// The order of imports follows from their paths: as the generator would have it.
			formatted, err := format.Source([]byte(made))
			if err != nil {
				return fmt.Errorf("%s: %w", rel, err)
			}
			made = string(formatted)
		}
		return put(filepath.Join(dir, filepath.FromSlash(rel)), made)
	})
	return written, err
}

// Text is a file of the service in a module.
func Text(text, module, version string) string {
	return strings.NewReplacer(here, module, "@VERSION", "@"+version).Replace(text)
}

func put(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // source code
		return err
	}
	mode := fs.FileMode(0o644)
	if path.Base(file) == "generate" {
		mode = 0o755
	}
	return os.WriteFile(file, []byte(text), mode)
}
