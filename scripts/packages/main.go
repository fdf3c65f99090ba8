// Command packages writes Debian and RPM packages of dbcontroller, without dpkg and rpm:
//
//	packages -version VERSION -time SECONDS -out FOLDER PLATFORM=PROGRAM...
//
// A package has the program, the units of deploy/systemd, and the examples of deploy/packages. It
// creates the group dbcontroller, and starts nothing. The same programs give the same bytes.
//
// The folder is a module of its own: no user of dbcontroller needs a library for packages. Begin to
// read at write.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// group may read the configuration. The user exists while a service runs.
const group = "dbcontroller"

func main() {
	version := flag.String("version", "", "version of the program")
	seconds := flag.Int64("time", 0, "time of all files, Unix seconds")
	out := flag.String("out", "", "folder for the packages")
	root := flag.String("root", "../..", "checkout with the other files")
	flag.Parse()
	if err := write(*out, *root, *version, time.Unix(*seconds, 0).UTC(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

// write writes a package of each kind for each program.
func write(out, root, version string, at time.Time, programs []string) error {
	if out == "" || version == "" || len(programs) == 0 {
		return errors.New("give -out, -version, and a program for each platform, such as linux/amd64=bin/dbcontroller")
	}
	for _, p := range programs {
		platform, program, ok := strings.Cut(p, "=")
		arch, linux := strings.CutPrefix(platform, "linux/")
		if !ok || !linux {
			return fmt.Errorf("%q is not linux/ARCHITECTURE=PROGRAM, such as linux/amd64=bin/dbcontroller", p)
		}
		for _, kind := range []string{"deb", "rpm"} {
			if err := writeOne(out, kind, info(root, version, arch, program, at)); err != nil {
				return fmt.Errorf("%s for %s: %w", kind, platform, err)
			}
		}
	}
	return nil
}

func writeOne(out, kind string, i *nfpm.Info) (err error) {
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(i, kind); err != nil {
		return err
	}
	name := filepath.Join(out, packager.ConventionalFileName(i))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = errors.Join(packager.Package(i, f), f.Close())
	if err != nil {
		_ = os.Remove(name) // the error above says why
	}
	return err
}

// info describes a package. The formats complete it, so each needs one of its own.
func info(root, version, arch, program string, at time.Time) *nfpm.Info {
	file := func(source, destination string, mode os.FileMode, owner string) *files.Content {
		return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Owner: "root", Group: owner, Mode: mode, MTime: at}}
	}
	// A package manager keeps what an administrator has changed.
	kept := func(name string, mode os.FileMode, owner string) *files.Content {
		c := file(filepath.Join(root, "deploy/packages", name), "/etc/dbcontroller/"+name, mode, owner)
		c.Type = files.TypeConfigNoReplace
		return c
	}
	folder := file("", "/etc/dbcontroller", 0o750, group)
	folder.Type = files.TypeDir
	script := func(name string) string { return filepath.Join(root, "deploy/packages", name) }
	i := &nfpm.Info{
		Name: "dbcontroller", Arch: arch, Platform: "linux", Version: version, Release: "1", MTime: at,
		Section: "database", Priority: "optional", License: "Apache-2.0", Homepage: "https://dbcontroller.dev",
		Maintainer:  "The dbcontroller authors <releases@dbcontroller.dev>",
		Description: "Moves a live database to its next version, and back\nControllers copy and follow all records, hold writes for a moment, and switch.",
		Overridables: nfpm.Overridables{
			Contents: files.Contents{
				file(program, "/usr/bin/dbcontroller", 0o755, "root"),
				file(filepath.Join(root, "deploy/systemd/dbcontroller.service"), "/usr/lib/systemd/system/dbcontroller.service", 0o644, "root"),
				file(filepath.Join(root, "deploy/systemd/dbcontroller-proxy.service"), "/usr/lib/systemd/system/dbcontroller-proxy.service", 0o644, "root"),
				file(filepath.Join(root, "LICENSE"), "/usr/share/doc/dbcontroller/copyright", 0o644, "root"),
				folder,
				kept("dbcontroller.example.yaml", 0o640, group),
				kept("proxy.example.yaml", 0o640, group),
				kept("environment", 0o600, "root"),
			},
			Scripts: nfpm.Scripts{PreInstall: script("preinstall.sh"), PostInstall: script("postinstall.sh"), PreRemove: script("preremove.sh"), PostRemove: script("postinstall.sh")},
			Deb:     nfpm.Deb{Fields: map[string]string{"Pre-Depends": "passwd"}},
			// Not the name of this machine.
			RPM: nfpm.RPM{BuildHost: "dbcontroller.dev", Summary: "Moves a live database to its next version, and back"},
		},
	}
	return nfpm.WithDefaults(i)
}
