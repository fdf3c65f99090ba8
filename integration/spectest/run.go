package spectest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// Selection selects tests: by their package, and by a pattern as go test -run takes it.
type Selection struct{ Package, Run string }

// All selects the tests of all suites.
var All = []Selection{
	{"unified", `^TestUnifiedSpec$/^(crud|transactions|sessions|retryable-writes|collection-management|change-streams)$`},
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

// Run runs the selected tests of the driver's module against a connection string. said gets what the tests
// print.
func Run(ctx context.Context, folder, uri string, what []Selection, said *bytes.Buffer) (Results, error) {
	all := Results{}
	for _, s := range what {
		var skip []string
		for panics := 0; ; panics++ {
			got, panicked, err := runOnce(ctx, folder, uri, s, skip, said)
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

// event is one line of go test -json.
type event struct{ Action, Test, Output string }

func runOnce(ctx context.Context, folder, uri string, what Selection, skip []string, said *bytes.Buffer) (got Results, panicked string, err error) {
	args := []string{"test", "-mod=readonly", "-count=1", "-timeout=60m", "-json", "-run", what.Run}
	if len(skip) > 0 {
		args = append(args, "-skip", strings.Join(skip, "|"))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+filepath.ToSlash(filepath.Join("mongo/integration", what.Package)))...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "MONGODB_URI="+uri, "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return nil, "", fmt.Errorf("run the specification tests: %w", errors.Join(err, ctx.Err()))
	}
	got, started := Results{}, ""
	in := bufio.NewScanner(bytes.NewReader(out))
	in.Buffer(nil, len(out)+1)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue
		}
		switch e.Action {
		case "run":
			started = e.Test
		case Passed, Failed, Skipped:
			if e.Test != "" {
				got[e.Test] = e.Action
			}
		case "output":
			said.WriteString(e.Output)
			if strings.HasPrefix(e.Output, "panic: ") && e.Test != "" {
				panicked = started
			}
		}
	}
	if len(got) == 0 {
		return nil, "", fmt.Errorf("no specification test ran: %v\n%s%s", err, stderr.Bytes(), tail(out))
	}
	return got, panicked, nil
}

// exactly returns the pattern for one test. go test compares each part of a name between slashes.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// tail returns the end of an output.
func tail(out []byte) []byte {
	const most = 2000
	return out[max(0, len(out)-most):]
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
