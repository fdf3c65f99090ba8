// Package build identifies the build of a program: version, commit and date of the commit. The
// linker sets them in a release (scripts/release). Other builds have the values that the go command
// records, or Unknown.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// scripts/release sets these with -X.
var version, commit, date string

// Unknown stands for a value that a build lacks.
const Unknown = "unknown"

// Info identifies a build. No text field is empty.
type Info struct {
	Version  string `json:"version"` // such as v1.2.0; "devel": not a release
	Commit   string `json:"commit"`
	Date     string `json:"date"`     // of the commit, RFC 3339
	Modified bool   `json:"modified"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"` // such as linux/amd64
}

// Read returns the build of the running program.
func Read() Info {
	settings := map[string]string{}
	// The go command records the commit only when it builds within a repository.
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	return Info{
		Version:  first(version, "devel"),
		Commit:   first(commit, settings["vcs.revision"], Unknown),
		Date:     first(date, settings["vcs.time"], Unknown),
		Modified: settings["vcs.modified"] == "true",
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String returns the build on one line.
func (i Info) String() string {
	changed := ""
	if i.Modified {
		changed = ", with changes"
	}
	return fmt.Sprintf("%s (commit %s of %s%s; %s, %s)", i.Version, i.Commit, i.Date, changed, i.Go, i.Platform)
}

func first(choices ...string) string {
	for _, c := range choices {
		if c != "" {
			return c
		}
	}
	return ""
}
