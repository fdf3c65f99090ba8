// Package starter holds the service that 'dbcontroller init service' generates: small, in two
// versions, with passing tests. The files below service/ are the template. They are built and
// tested with all other code, so they cannot become outdated. Write changes only the name of the
// service, its import paths, and the version of this library.
//
// The package does not create or download Go modules. Begin to read at Write.
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

// here is the import path of the service in this module.
const here = "dbcontroller.dev/examples/starter/service"

// goMod is the go.mod of a generated service. 'go get' adds the requirements.
const goMod = `module %s

go 1.26.0
`

// gitignore covers the files that processes and builds leave in the folder.
const gitignore = "/bin/\n/data/\n"

// Write generates a service with this name as a module in dir, and returns the names of its files.
// dir must be absent or empty. version is the version of this library that README tells the user to
// get.
func Write(dir, name, module, version string) ([]string, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	// An existing project must not be overwritten.
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
		// File paths contain the service's name too.
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
			// The import paths have changed, and with them the order of imports.
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

// Text adapts a file of the service to its module and to the version of this library.
func Text(text, module, version string) string {
	return strings.NewReplacer(here, module, "@VERSION", "@"+version).Replace(text)
}

func put(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // #nosec G301 -- source code, which others may read
		return err
	}
	mode := fs.FileMode(0o644)
	// The README runs this script directly.
	if path.Base(file) == "generate" {
		mode = 0o755
	}
	return os.WriteFile(file, []byte(text), mode)
}
