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
	for variable, folder := range map[string]string{"chosen_system": "integration", "chosen_store": "internal/store/mongostore"} {
		list := regexp.MustCompile(`(?m)^` + variable + `='([^']+)'$`).FindSubmatch(script)
		if list == nil {
			t.Fatalf("scripts/test has no %s", variable)
		}
		chosen := strings.Split(string(list[1]), "|")
		tests, withProcesses := testsOf(t, filepath.Join(root, filepath.FromSlash(folder)))
		for _, name := range chosen {
			if !slices.Contains(tests, name) {
				t.Errorf("scripts/test chooses %s, which %s has not", name, folder)
			}
		}
		if slices.Sort(chosen); len(withProcesses) > 0 && !slices.Equal(chosen, withProcesses) {
			t.Errorf("scripts/test chooses %v of %s, but raceProcesses is called by %v", chosen, folder, withProcesses)
		}
	}
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
