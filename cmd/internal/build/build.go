// Package build says which build a program is: its version, the commit it was made from,
// and when that was committed. A release sets them while linking (scripts/release); any
// other build has what the go command notes by itself, or says that it does not know.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by scripts/release with -X.
var version, commit, date string

// Unknown stands for what a build does not know of itself.
const Unknown = "unknown"

// Info is what a build knows of itself. No field is empty.
type Info struct {
	Version  string `json:"version"` // such as v1.2.0; "devel" for what is no release
	Commit   string `json:"commit"`
	Date     string `json:"date"`     // of the commit, RFC 3339
	Modified bool   `json:"modified"` // the tree had changes that are not in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"` // such as linux/amd64
}

// Read returns what the running program knows of itself.
func Read() Info {
	settings := map[string]string{}
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

// String is the info on one line.
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
