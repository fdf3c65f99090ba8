package spectest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// Outcomes of cases.
const (
	Passed  = "pass"
	Failed  = "fail"
	Skipped = "skip"
	NotRun  = "-" // the selection did not include it
)

// Results holds the outcome of each case by the name of its test.
type Results map[string]string

// Selection selects tests: by the folder of their package, and by a pattern as go test -run takes it.
type Selection struct{ Package, Run string }

// All selects the tests of all suites.
var All = []Selection{
	{unified, `^TestUnifiedSpec$/^(crud|transactions|sessions|retryable-writes|collection-management|change-streams)$`},
	{"", `^(TestCrudSpec|TestRetryableWritesSpec)$`},
	{"", `^TestUnifiedSpecs$/^(transactions|convenient-transactions|retryable-reads)$`},
}

// suites are the suites by the beginnings of the names of their tests.
var suites = []struct{ prefix, name string }{
	{"TestUnifiedSpec/crud/", "CRUD"},
	{"TestCrudSpec/", "CRUD"},
	{"TestUnifiedSpec/transactions/", "transactions"},
	{"TestUnifiedSpecs/transactions/", "transactions"},
	{"TestUnifiedSpecs/convenient-transactions/", "transactions"},
	{"TestUnifiedSpec/sessions/", "sessions"},
	{"TestUnifiedSpecs/retryable-reads/", "retryable reads"},
	{"TestUnifiedSpec/retryable-writes/", "retryable writes"},
	{"TestRetryableWritesSpec/", "retryable writes"},
	{"TestUnifiedSpec/collection-management/", "collection management"},
	{"TestUnifiedSpec/change-streams/", "change streams"},
}

// Suite returns the suite that a case belongs to.
func Suite(name string) string {
	for _, s := range suites {
		if strings.HasPrefix(name, s.prefix) {
			return s.name
		}
	}
	return ""
}

// mostPanics bounds the runs of a selection. A panic of the driver's own program ends the tests after it,
// so they run again without the one that panicked.
const mostPanics = 5

// Run runs selected tests against a connection string. said gets what they print.
func (t *Tests) Run(ctx context.Context, uri string, what []Selection, said *bytes.Buffer) (Results, error) {
	all := Results{}
	for _, s := range what {
		var skip []string
		for panics := 0; ; panics++ {
			got, panicked, err := t.runOnce(ctx, uri, s, skip, said)
			if err != nil {
				return nil, err
			}
			for name, outcome := range got {
				if all[name] == "" || outcome != Skipped {
					all[name] = outcome
				}
			}
			if panicked == "" {
				break
			}
			all[panicked] = Failed
			if panics == mostPanics {
				return nil, fmt.Errorf("%d tests panicked, the last one is %s", panics, panicked)
			}
			skip = append(skip, exactly(panicked))
		}
	}
	return leaves(all), nil
}

// Lines of a test program that go test -json reads. The mark before them is not in the output of a test.
var (
	ended = regexp.MustCompile(`\x16 *--- (PASS|FAIL|SKIP): (.+) \([0-9.]+s\)\n`)
	begun = regexp.MustCompile(`\x16=== RUN   (.+)\n`)
	broke = regexp.MustCompile(`(?m)^\x16?panic: `)
)

func (t *Tests) runOnce(ctx context.Context, uri string, what Selection, skip []string, said *bytes.Buffer) (got Results, panicked string, err error) {
	args := []string{"-test.v=test2json", "-test.timeout=60m", "-test.run=" + what.Run}
	if len(skip) > 0 {
		args = append(args, "-test.skip="+strings.Join(skip, "|"))
	}
	out, err := t.command(ctx, what.Package, uri, args...).CombinedOutput()
	said.Write(out)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return nil, "", fmt.Errorf("run the specification tests: %w", errors.Join(err, ctx.Err()))
	}
	got = Results{}
	for _, m := range ended.FindAllSubmatch(out, -1) {
		got[string(m[2])] = strings.ToLower(string(m[1]))
	}
	if len(got) == 0 {
		return nil, "", fmt.Errorf("no specification test ran: %v\n%s", err, out[max(0, len(out)-endOfOutput):])
	}
	if at := broke.FindIndex(out); at != nil {
		if before := begun.FindAllSubmatch(out[:at[0]], -1); len(before) > 0 {
			panicked = string(before[len(before)-1][1])
		}
	}
	return got, panicked, nil
}

// endOfOutput is the length of the end of an output in an error.
const endOfOutput = 2000

// exactly returns the pattern for one test. go test compares each part of a name between slashes.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// leaves leaves out the tests that only contain others, and what belongs to no suite.
func leaves(all Results) Results {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	inner := map[string]bool{}
	for _, name := range names {
		for at := strings.LastIndex(name, "/"); at > 0; at = strings.LastIndex(name[:at], "/") {
			inner[name[:at]] = true
		}
	}
	out := Results{}
	for name, outcome := range all {
		if !inner[name] && Suite(name) != "" {
			out[name] = outcome
		}
	}
	return out
}
