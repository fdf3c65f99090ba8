package figures

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// intro and scaleIntro are the fixed texts of the pages.
var (
	//go:embed intro.md
	intro string
	//go:embed scale.md
	scaleIntro string
)

// Page returns the document docs/benchmarks.md or docs/scale.md. It refers to the files of Charts.
func (f *File) Page() string {
	name, title, begin, example := Benchmarks, "Benchmarks", intro, "^lag.w1"
	if f.Name == Scale {
		name, title, begin, example = Scale, "Cost per record", scaleIntro, "^cost.1e5"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Written by make bench from %s.json: change integration/bench/figures instead. -->\n# %s\n\n", name, title)
	// A note qualifies all figures, so it comes first.
	if f.Note != "" {
		fmt.Fprintf(&b, "> **%s**\n\n", f.Note)
	}
	b.WriteString(begin)
	if f.Name == Scale {
		f.trend(&b)
	} else {
		f.summary(&b)
	}
	for _, group := range f.groups() {
		fmt.Fprintf(&b, "\n## %s\n\n", group)
		if group == Copy || group == Grows {
			fmt.Fprintf(&b, "![Copies and the limit](%s/copy.svg)\n\n", name)
		}
		if group == Following {
			fmt.Fprintf(&b, "![Latencies](%s/latency.svg)\n\n", name)
		}
		f.table(&b, group)
	}
	f.peers(&b)
	f.missed(&b)
	f.where(&b, example)
	return b.String()
}

// groups returns the groups of the rows, in order.
func (f *File) groups() (out []string) {
	for _, r := range f.Rows {
		if !slices.Contains(out, r.Group) {
			out = append(out, r.Group)
		}
	}
	return out
}

func (f *File) summary(b *strings.Builder) {
	var met, missed, open []string
	for _, r := range f.Rows {
		switch {
		case r.Bar == nil:
		// A row with a bar and no run.
		case r.Met == nil:
			open = append(open, "`"+r.Name+"`")
		case *r.Met:
			met = append(met, r.Name)
		default:
			missed = append(missed, "`"+r.Name+"`")
		}
	}
	fmt.Fprintf(b, "\n## Bars\n\n%d are met, %d are missed, %d were not measured.\n\n![Figures against their bars](%s/bars.svg)\n\n", len(met), len(missed), len(open), Benchmarks)
	for _, l := range []struct {
		what  string
		names []string
	}{{"Missed", missed}, {"Not measured", open}} {
		if len(l.names) > 0 {
			fmt.Fprintf(b, "%s: %s.\n\n", l.what, strings.Join(l.names, ", "))
		}
	}
}

func (f *File) table(b *strings.Builder, group string) {
	b.WriteString("| row | figure | median | of the limit | runs: least, most | bar | |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range f.Rows {
		if r.Group != group {
			continue
		}
		value, ratio, runs, verdict := "not measured", "", "", ""
		if r.Value != nil {
			value = number(*r.Value) + " " + r.Unit
			runs = fmt.Sprintf("%d: %s, %s", len(r.Runs), number(r.Min), number(r.Max))
		}
		if r.RatioToLimit != nil {
			ratio = strconv.FormatFloat(*r.RatioToLimit, 'f', 2, 64)
		}
		if r.Met != nil {
			verdict = map[bool]string{true: "met", false: "**missed**"}[*r.Met]
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", r.Name, r.Title, value, ratio, runs, r.Bar.String(), verdict)
	}
	b.WriteString("\n")
	f.said(b, group)
}

// said writes how rows were measured. Consecutive rows with the same text share it.
func (f *File) said(b *strings.Builder, group string) {
	var names []string
	before := ""
	flush := func() {
		if len(names) > 0 {
			fmt.Fprintf(b, "- `%s`: %s\n", strings.Join(names, "`, `"), before)
		}
		names = nil
	}
	for _, r := range f.Rows {
		if r.Group != group {
			continue
		}
		// Empty parts would leave double blanks.
		parts := slices.DeleteFunc([]string{r.Measured, r.Note, r.Short, prefixed("Not measured: ", r.Missing)}, func(s string) bool { return s == "" })
		text := strings.Join(parts, " ")
		if text != before {
			flush()
		}
		names, before = append(names, r.Name), text
	}
	flush()
}

// Alone returns the command that measures only the rows that match a pattern.
func (f *File) Alone(pattern string) string {
	target := "bench"
	if f.Name == Scale {
		target = "bench-scale"
	}
	return fmt.Sprintf(`make %s ARGS="-only '%s'"`, target, pattern)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// String formats the bar; "" for nil.
func (b *Bar) String() string {
	if b == nil {
		return ""
	}
	s := "at least " + number(b.Least)
	if b.Most != 0 {
		s = "at most " + number(b.Most)
	}
	if b.Ratio {
		s += " of the limit"
	}
	return s
}

// peers writes the table of peers, below the rows.
func (f *File) peers(b *strings.Builder) {
	if len(f.Peers) == 0 {
		return
	}
	b.WriteString("\nThey copy the records of copy.fixed, in the same rounds. What is told to one that did not run was not tried.\n\n| tool | what it does less | here |\n| --- | --- | --- |\n")
	for _, p := range f.Peers {
		// Figures are in the rows; this table only says what the tool lacks.
		here := "ran, see the rows above"
		if p.Absent != "" {
			here = "**did not run**: " + p.Absent
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", p.Name, p.Less, here)
	}
}

func (f *File) where(b *strings.Builder, example string) {
	m := f.Machine
	fmt.Fprintf(b, "\n## Where and how\n\n- %s, %d cores, %s, %.0f GB of memory; load average before it: %.2f\n", m.System, m.Cores, m.Processor, m.MemoryGB, m.Load)
	fmt.Fprintf(b, "- begun %s, took %.1f minutes\n", f.Date, f.Took)
	for _, name := range slices.Sorted(maps.Keys(f.Versions)) {
		fmt.Fprintf(b, "- %s %s\n", name, f.Versions[name])
	}
	b.WriteString("\n```sh\n")
	for _, c := range f.Commands {
		b.WriteString(c + "\n")
	}
	fmt.Fprintf(b, "```\n\nA row by itself, printed and not written: `%s`.\n", f.Alone(example))
}

// number formats v with at least three significant digits, and with separators of thousands.
func number(v float64) string {
	digits := 0
	if v < 100 {
		digits = 1
	}
	if v < 10 {
		digits = 2
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	whole, rest, found := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	// Trailing zeros would suggest a precision that the figure does not have.
	if rest = strings.TrimRight(rest, "0"); !found || rest == "" {
		return whole
	}
	return whole + "." + rest
}
