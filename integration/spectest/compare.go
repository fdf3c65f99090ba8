package spectest

import (
	"bufio"
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// Of returns the outcome of a case. A file of cases that does not fit the server is skipped as a whole, under
// its own name.
func (r Results) Of(name string) string {
	for {
		if outcome, ok := r[name]; ok {
			return outcome
		}
		at := strings.LastIndex(name, "/")
		if at < 0 {
			return NotRun
		}
		name = name[:at]
	}
}

// Difference is a case that passes directly, and not through a proxy. A Case that ends with a star stands for
// all that begin so, of which some may pass. One with a question mark at its end may pass or not.
type Difference struct{ Form, Case, Reason string }

//go:embed testdata/differences.txt
var differences string

// Expected returns the expected differences of a form. Those that are marked "both" are of both forms.
func Expected(form string) (out []Difference, err error) {
	lines := bufio.NewScanner(strings.NewReader(differences))
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			parts := strings.SplitN(line, "\t", 3)
			if len(parts) != 3 || parts[0] != "both" && parts[0] != Moving {
				return nil, fmt.Errorf("differences.txt: %q is not FORM, CASE and REASON with tabs between", line)
			}
			if parts[0] == "both" || parts[0] == form {
				out = append(out, Difference{parts[0], parts[1], parts[2]})
			}
		}
	}
	return out, nil
}

// covers reports whether an expected difference is about a case.
func (d Difference) covers(name string) bool {
	prefix, several := strings.CutSuffix(d.Case, "*")
	return name == strings.TrimSuffix(d.Case, "?") || several && strings.HasPrefix(name, prefix)
}

// Compare returns what is wrong: cases that pass directly and not through a proxy, unless they are expected,
// and expected ones that pass. Cases that did not run through the proxy count only if whole is set.
func Compare(direct, through Results, expected []Difference, whole bool) (wrong []string) {
	gone := map[Difference]bool{}
	for _, d := range expected {
		gone[d] = strings.HasSuffix(d.Case, "?")
	}
	for name, outcome := range direct {
		got := through.Of(name)
		if outcome != Passed || got == NotRun && !whole {
			continue
		}
		i := slices.IndexFunc(expected, func(d Difference) bool { return d.covers(name) })
		switch {
		case i < 0 && got != Passed:
			wrong = append(wrong, fmt.Sprintf("%s passes directly, and through the proxy the outcome is %s", name, got))
		case i >= 0 && got == Passed && name == expected[i].Case:
			wrong = append(wrong, fmt.Sprintf("%s passes: remove it from differences.txt", name))
		case i >= 0 && got != Passed:
			gone[expected[i]] = true
		}
	}
	for d, met := range gone {
		if whole && !met {
			wrong = append(wrong, fmt.Sprintf("%s is in differences.txt, and there is no such difference", d.Case))
		}
	}
	slices.Sort(wrong)
	return wrong
}
