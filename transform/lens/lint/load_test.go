package lint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/transform/lens/lint"
)

func TestLoadTellsAllErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		texts []string
		want  []string
	}{
		{"several operations of several files", []string{`operations:
  - rename: {from: a, too: b}
  - add: {field: ok, value: 1}
  - convert:
      field: x
      from: int
      to: nothing
  - add: {field: y}
`, "operations: 5\n"}, []string{
			`0.yaml:2:23: rename has no key "too"; allowed: from, to`,
			`0.yaml:7:11: to: unknown type "nothing"; allowed: string, int, long, double, decimal, number, bool, objectId, uuid, date, rfc3339, epoch`,
			`0.yaml:8:10: add needs either default (the new version's application may change it) or value (a constant)`,
			`1.yaml:1:13: operations must be a list of operations`,
		}},
		{"no follow-up errors", []string{"operations:\n  - add: {field: a, valu: 1}\n  - rename: {from: a, to: b}\n"},
			[]string{`0.yaml:2:21: add has no key "valu"; allowed: field, default, value`}},
		{"what is wrong with all operations together", []string{`key: {from: "a/{x}/{r}", to: "a/{x}", without: {r: {field: region}}}
operations:
  - rename: {from: b, to: c}
  - rename: {from: d, to: region}
  - rename: {from: f, to: g}
`}, []string{`0.yaml:3:3: key variable r in field region: operation 3 (rename d to region) has made region`}},
		{"a key behind the operations", []string{"operations:\n  - rename: {from: a, to: b}\n  - nothing: 1\nlens: 2\n"},
			[]string{`0.yaml:4:7: lens: format 2 is unknown; this program reads format 1`}},
		{"one operation", []string{"operations:\n  - nothing: 1\n"}, []string{`0.yaml:2:5: unknown operation "nothing"`}},
		{"flow style", []string{"operations: [a: 1, b: 2]\n"}, []string{`0.yaml:1:14: unknown operation "a"`}},
		{"reference", []string{"kinds: {from: a, to: a}\noperations:\n  - reference: {field: b, kind: nowhere}\n"},
			[]string{`0.yaml:3:33: this service has no kind "nowhere"; it has: a`}},
		{"no YAML", []string{"operations: ["}, []string{"0.yaml:1:13: "}},
		{"empty", []string{""}, []string{"0.yaml:0:0: the lens is empty"}},
		{"one kind twice", []string{"kinds: {from: a, to: a}\noperations: []\n", "kinds: {from: a, to: a}\noperations: []\n"},
			[]string{"the lenses contradict each other: add transformers old to new: spec a is there twice"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var inputs []lint.Input
			for i, text := range tc.texts {
				path := filepath.Join(dir, string(rune('0'+i))+".yaml")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				inputs = append(inputs, lint.Input{Path: path})
			}
			_, errs := lint.Load(inputs, nil)
			var got []string
			for i, err := range errs {
				text := strings.ReplaceAll(err.Error(), dir+"/", "")
				if i < len(tc.want) && strings.HasPrefix(text, tc.want[i]) {
					text = tc.want[i]
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestKindsComeFromTheLensOrItsFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"operations: []": {"things", "things"},
		"kinds: {from: a, to: b}\noperations: []":         {"a", "b"},
		"lens: 1\noperations: [rename: {from: a, to: b}]": {"things", "things"},
	} {
		s := loaded(t, "things.v1.yaml", text)[0]
		if got := [2]string{s.Spec.Old.Kinds[0].Name, s.Spec.New.Kinds[0].Name}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
