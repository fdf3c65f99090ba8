package spectest

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Forms are the ways in which the tests run: directly against a mongos of a cluster of one shard and against
// a replica set, and through a proxy before a replica set, with collections that do not move and with
// collections that do.
var Forms = []string{Router, ReplicaSet, Fixed, Moving}

// The forms.
const (
	Router     = "router"
	ReplicaSet = "replicaset"
	Fixed      = "fixed"
	Moving     = "moving"
)

// Read reads the results of all forms from a file: a line for each case, with its outcomes and its name.
func Read(path string) (map[string]Results, error) {
	f, err := os.Open(path) // #nosec G304 -- of the tests
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	all := map[string]Results{}
	for _, form := range Forms {
		all[form] = Results{}
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), " ", len(Forms)+1)
		if len(parts) <= len(Forms) || parts[0] == "#" {
			continue
		}
		for i, form := range Forms {
			if parts[i] != NotRun {
				all[form][parts[len(Forms)]] = parts[i]
			}
		}
	}
	return all, lines.Err()
}

// Write writes the results of all forms into a file.
func Write(path string, all map[string]Results) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: outcomes of each case of %s %s. Made by 'make spec'.\n", strings.Join(Forms, " "), module, version)
	for _, name := range cases(all) {
		for _, form := range Forms {
			b.WriteString(all[form].Of(name) + " ")
		}
		b.WriteString(name + "\n")
	}
	return os.WriteFile(path, []byte(b.String()), 0o644) // #nosec G306 -- it is committed
}

// cases returns the names of the cases of all forms. A form that skips a file names no case of it.
func cases(all map[string]Results) (names []string) {
	for _, form := range Forms {
		for name := range all[form] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

// Page returns the results for readers: a table of the suites, and the list of the differences.
func Page(all map[string]Results) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `<!-- Written by make spec. -->
# The drivers' specification tests through the proxy

For readers who want to know how far [the proxy](proxy.md) is from a mongos. The tests are the unified specification tests of all MongoDB drivers, as the Go driver %s carries and runs them, on MongoDB 8.2. They ran directly against two mongoses of a cluster of one shard, and against a replica set. Then they ran through two proxies before a replica set: once with collections that do not move, and once with all of them moved, under other names and in another database. Tests for other versions or kinds of servers are skipped everywhere.

| suite | cases | passed at a mongos | of these through the proxy | and moved | passed at a replica set |
| --- | --- | --- | --- | --- | --- |
`, version)
	var total, n [5]int
	row := func(name string, n [5]int) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d |\n", name, n[0], n[1], n[2], n[3], n[4])
	}
	last := ""
	names := cases(all)
	for _, s := range suites {
		if s.name == last {
			continue
		}
		last, n = s.name, [5]int{}
		for _, name := range names {
			if Suite(name) != s.name {
				continue
			}
			direct := all[Router].Of(name) == Passed
			for i, yes := range [5]bool{true, direct, direct && all[Fixed].Of(name) == Passed, direct && all[Moving].Of(name) == Passed, all[ReplicaSet].Of(name) == Passed} {
				if yes {
					n[i]++
					total[i]++
				}
			}
		}
		row(s.name, n)
	}
	row("all", total)
	b.WriteString("\n## What does not pass\n\n`make spec` fails if any other case differs, or if one of these passes.\n\n| cases | form | name | reason |\n| --- | --- | --- | --- |\n")
	expected, err := Expected(Moving)
	for _, d := range expected {
		covered := 0
		for _, name := range names {
			if all[Router].Of(name) == Passed && d.covers(name) {
				covered++
			}
		}
		_, short, _ := strings.Cut(d.Case, "/")
		fmt.Fprintf(&b, "| %d | %s | `%s` | %s |\n", covered, d.Form, short, d.Reason)
	}
	return b.String(), err
}
