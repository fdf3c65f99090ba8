package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"dbcontroller.dev/transform/lens/lint"
)

func TestCompareTellsWhatChanges(t *testing.T) {
	t.Parallel()
	subjects := loaded(t, "a.yaml", `
operations:
  - rename: {from: section, to: category}
  - move: {from: homepage, to: links.homepage}
  - convert: {field: size, from: int, to: long}
  - convert: {field: priority, table: {optional: normal}}
  - split: {field: owner, to: [team, person], separator: /}
  - remove: {field: legacy}
  - add: {field: schema, value: 2}
  - each: {field: deps, in: list, operations: [rename: {from: ver, to: version}]}
`)
	c, err := lint.Compare(t.Context(), subjects, []lint.Sample{of(t, "a", `
{"_id":1,"section":"s","homepage":"h","size":5,"priority":"optional","owner":"t/p","legacy":true,"deps":[{"ver":1},{"ver":2}],"kept":{"a":[1,2]}}
{"_id":2,"section":"s"}
{"_id":3,"size":"five"}`)}, 1, lint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ch := range c.Changes {
		got = append(got, fmt.Sprintf("%s %s > %s (%s) %d: %s > %s", ch.Change, ch.From, ch.To, ch.Types, ch.Records, ch.Example.From, ch.Example.To))
	}
	want := []string{
		`moved section > category () 2: "s" > "s"`,
		`moved deps.*.ver > deps.*.version () 1: int 1 > int 1`,
		`moved homepage > links.homepage () 1: "h" > "h"`,
		`split owner > team, person () 1: "t/p" > "t"`,
		`type size > size (int to long) 1: int 5 > long 5`,
		`value priority > priority () 1: "optional" > "normal"`,
		`added  > schema () 2:  > int 2`,
		`removed legacy >  () 1: true > `,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Groups != 3 || c.Failed != 1 || len(c.Pairs) != 1 {
		t.Errorf("%d groups, %d failed, %d pairs", c.Groups, c.Failed, len(c.Pairs))
	}
}

// TestUnifiedLeadsFromOneToTheOther applies the difference to the old text.
func TestUnifiedLeadsFromOneToTheOther(t *testing.T) {
	t.Parallel()
	line := rapid.SampledFrom([]string{"a", "b", "c", "{", "}"})
	rapid.Check(t, func(t *rapid.T) {
		was, is := rapid.SliceOfN(line, 1, 30).Draw(t, "was"), rapid.SliceOfN(line, 1, 30).Draw(t, "is")
		diff := lint.Unified(strings.Join(was, "\n")+"\n", strings.Join(is, "\n")+"\n")
		var got []string
		next := 0 // of was
		for _, l := range strings.Split(strings.TrimSuffix(diff, "\n"), "\n") {
			switch {
			case l == "":
			case strings.HasPrefix(l, "@@"):
				var at, n, to, m int
				if _, err := fmt.Sscanf(l, "@@ -%d,%d +%d,%d @@", &at, &n, &to, &m); err != nil {
					t.Fatal(err)
				}
				if n > 0 {
					at--
				}
				got = append(got, was[next:at]...)
				next = at
			case l[0] == '+':
				got = append(got, l[1:])
			default:
				if was[next] != l[1:] {
					t.Fatalf("line %d is %q, the difference has %q:\n%s", next, was[next], l, diff)
				}
				if l[0] == ' ' {
					got = append(got, was[next])
				}
				next++
			}
		}
		got = append(got, was[next:]...)
		if d := cmp.Diff(is, got); d != "" {
			t.Fatalf("%s\n%s", d, diff)
		}
	})
}
