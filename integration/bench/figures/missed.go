package figures

import (
	_ "embed"
	"fmt"
	"strings"
)

// reasons explains missed bars: the profile that shows the cause, and the work needed to meet the
// bar. A section begins with "### `row`" and may cover several rows.
//
//go:embed missed.md
var reasons string

// reason returns the section of a row without its heading, or "".
func reason(row string) string {
	for _, section := range strings.Split("\n"+reasons, "\n### ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if strings.Contains(heading, "`"+row+"`") {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// missed writes the explanation of each missed bar. Consecutive rows with the same explanation
// share it.
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
		// No heading if all bars are met.
		if !begun {
			begun = true
			b.WriteString("\n## Missed bars\n\nWhy, and what it would take. Profiles are of `perf record -F 299 -g -a`, over all processes of the machine.\n")
		}
		why := reason(r.Name)
		// A missed bar without an explanation must still show.
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
