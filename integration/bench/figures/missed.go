package figures

import (
	_ "embed"
	"fmt"
	"strings"
)

// reasons are why bars are missed, with the profile that shows it, and what it would take to meet
// them: sections that begin with "### `row`" and may be of several rows.
//
//go:embed missed.md
var reasons string

// reason returns the section of a row, without its heading; empty if there is none.
func reason(row string) string {
	for _, section := range strings.Split("\n"+reasons, "\n### ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if strings.Contains(heading, "`"+row+"`") {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// missed tells of each bar that is missed what is known of it; rows with one section do so once.
func (f *File) missed(b *strings.Builder) {
	begun := false
	var names []string
	before := ""
	flush := func() {
		if len(names) > 0 {
			fmt.Fprintf(b, "\n### `%s`\n\n%s\n", strings.Join(names, "`, `"), before)
		}
		names = nil
	}
	for _, r := range f.Rows {
		if r.Met == nil || *r.Met {
			continue
		}
		if !begun {
			begun = true
			b.WriteString("\n## Missed bars\n\nWhy, and what it would take. Profiles are of `perf record -F 299 -g -a`, over all processes of the machine.\n")
		}
		why := reason(r.Name)
		if why == "" {
			why = "Not looked into."
		}
		if why != before {
			flush()
		}
		names, before = append(names, r.Name), why
	}
	flush()
}
