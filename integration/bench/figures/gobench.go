package figures

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// GoBench returns the runs in Go's benchmark format, which benchstat compares. The unit determines
// whether lower or higher is better.
func (f *File) GoBench() string {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ncpu: %s\n", f.Machine.System, f.Machine.Processor)
	var units []string
	for _, r := range f.Rows {
		if u := unit(r.Unit); len(r.Runs) > 0 && !slices.Contains(units, u) {
			units = append(units, u)
			better := "lower"
			// Rates of records and changes: more is better. Requests to etcd are a cost.
			if strings.HasSuffix(u, "s/s") && u != "requests/s" {
				better = "higher"
			}
			if u != "x" && u != "pct" { // for these units the better direction depends on the row
				fmt.Fprintf(&b, "Unit %s better=%s\n", u, better)
			}
		}
	}
	for _, r := range f.Rows {
		name := []rune(r.Name)
		// benchstat takes only names with an upper-case letter after "Benchmark".
		name[0] = unicode.ToUpper(name[0])
		for i, v := range r.Runs {
			// Each run is a line of its own, from which benchstat computes the variation.
			fmt.Fprintf(&b, "Benchmark%s 1 %g %s", string(name), v, unit(r.Unit))
			if len(r.Limits) == len(r.Runs) && r.Limits[i] > 0 {
				fmt.Fprintf(&b, " %g ratio-to-limit", v/r.Limits[i])
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// unit returns a form of the unit that benchstat accepts.
func unit(u string) string { return strings.NewReplacer("µ", "u", "%", "pct", " ", "-").Replace(u) }
