package spectest_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/integration/spectest"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	direct := spectest.Results{"d/f/a": "pass", "d/f/b": "pass", "d/g/c": "pass", "d/g/d": "fail", "d/h/e": "pass", "d/h/f": "pass", "d/i/g": "pass"}
	expected := []spectest.Difference{{Case: "d/f/b"}, {Case: "d/h/*"}, {Case: "d/i/g?"}}
	const (
		a    = "d/f/a passes directly, and through the proxy the outcome is fail"
		c    = "d/g/c passes directly, and through the proxy the outcome is skip"
		lost = "d/f/a passes directly, and through the proxy the outcome is -"
		b    = "d/f/b passes: remove it from differences.txt"
		gone = "d/f/b is in differences.txt, and there is no such difference"
		star = "d/h/* is in differences.txt, and there is no such difference"
	)
	for name, tc := range map[string]struct {
		through spectest.Results
		whole   bool
		want    []string
	}{
		"as expected":          {spectest.Results{"d/f/a": "pass", "d/f/b": "fail", "d/g/c": "pass", "d/g/d": "fail", "d/h/e": "fail", "d/h/f": "pass", "d/i/g": "pass"}, true, nil},
		"new differences":      {spectest.Results{"d/f/a": "fail", "d/f/b": "skip", "d/g": "skip", "d/h/e": "fail", "d/h/f": "fail"}, true, []string{a, c}},
		"an expected one":      {spectest.Results{"d/f/a": "pass", "d/f/b": "pass", "d/g/c": "pass", "d/h/e": "fail", "d/h/f": "fail"}, true, []string{gone, b}},
		"all expected ones":    {spectest.Results{"d/f/a": "pass", "d/f/b": "fail", "d/g/c": "pass", "d/h/e": "pass", "d/h/f": "pass"}, true, []string{star}},
		"one that did not run": {spectest.Results{"d/f/b": "fail", "d/g/c": "pass", "d/h/e": "fail"}, true, []string{lost}},
		"a part":               {spectest.Results{"d/f/a": "fail"}, false, []string{a}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, spectest.Compare(direct, tc.through, expected, tc.whole)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestResultsAreKept: what is written is read, and a file that a form skips stands for its cases.
func TestResultsAreKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.txt")
	all := map[string]spectest.Results{
		spectest.Router: {"d/f/a case with spaces": "pass"}, spectest.ReplicaSet: {"d/f": "skip"}, spectest.Fixed: {}, spectest.Moving: {},
	}
	if err := spectest.Write(path, all); err != nil {
		t.Fatal(err)
	}
	got, err := spectest.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got[spectest.Router].Of("d/f/a case with spaces") != spectest.Passed || got[spectest.ReplicaSet].Of("d/f/a case with spaces") != spectest.Skipped || len(got[spectest.Fixed]) != 0 {
		t.Errorf("%v", got)
	}
}
