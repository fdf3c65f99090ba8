package raced

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestChosenTestsAreThere compares the tests that scripts/test runs with the race detector against
// the packages: go test passes if a pattern matches nothing. In integration they are exactly those
// whose processes have the race detector too. Otherwise a test would build its processes with it, and
// no run would ever use them.
func TestChosenTestsAreThere(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	script, err := os.ReadFile(filepath.Join(root, "scripts", "test"))
	if err != nil {
		t.Fatal(err)
	}
	for variable, folders := range map[string][]string{"chosen_system": {"integration"}, "chosen_store": foldersOf(t, string(script), "store")} {
		list := regexp.MustCompile(`(?m)^` + variable + `='([^']+)'$`).FindSubmatch(script)
		if list == nil {
			t.Fatalf("scripts/test has no %s", variable)
		}
		chosen := strings.Split(string(list[1]), "|")
		var tests, withProcesses []string
		for _, folder := range folders {
			all, with := testsOf(t, filepath.Join(root, filepath.FromSlash(folder)))
			tests, withProcesses = append(tests, all...), append(withProcesses, with...)
		}
		for _, name := range chosen {
			if !slices.Contains(tests, name) {
				t.Errorf("scripts/test chooses %s, which %v have not", name, folders)
			}
		}
		if slices.Sort(chosen); len(withProcesses) > 0 && !slices.Equal(chosen, withProcesses) {
			t.Errorf("scripts/test chooses %v of %s, but raceProcesses is called by %v", chosen, folders, withProcesses)
		}
	}
}

// foldersOf returns the folders of the packages in a list of scripts/test.
func foldersOf(t *testing.T, script, list string) (folders []string) {
	t.Helper()
	packages := regexp.MustCompile(`(?m)^` + list + `=\(([^)]+)\)$`).FindStringSubmatch(script)
	if packages == nil {
		t.Fatalf("scripts/test has no %s", list)
	}
	for _, p := range strings.Fields(packages[1]) {
		folders = append(folders, strings.TrimPrefix(p, "dbcontroller.dev/"))
	}
	return folders
}

// testsOf returns the tests of a folder, and those of them that call raceProcesses, in order.
func testsOf(t *testing.T, folder string) (all, withProcesses []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := begins.FindAllSubmatchIndex(text, -1)
		for i, m := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			name := string(text[m[2]:m[3]])
			all = append(all, name)
			if strings.Contains(string(text[m[0]:end]), "\n\traceProcesses(t)\n") {
				withProcesses = append(withProcesses, name)
			}
		}
	}
	slices.Sort(withProcesses)
	return all, withProcesses
}
