package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// changesOf compares a sample, and shows what it finds.
func changesOf(t *testing.T, text, sample string) []string {
	t.Helper()
	c, err := lint.Compare(t.Context(), loaded(t, "a.yaml", text), []lint.Sample{of(t, "a", sample)}, 0, lint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ch := range c.Changes {
		got = append(got, fmt.Sprintf("%s %s > %s %s %d fields in %d: %s > %s", ch.Change, ch.From, ch.To, ch.Types, ch.Fields, ch.Records, ch.Example.From, ch.Example.To))
	}
	return got
}

// TestCompareFoldsMaps: what happens to all values of a map is one change, and fields of a
// document, however many, are not a map.
func TestCompareFoldsMaps(t *testing.T) {
	t.Parallel()
	var sample strings.Builder
	for i := range 10 {
		fmt.Fprintf(&sample, `{"_id":%d,"stock":{`, i)
		for j := range 70 {
			fmt.Fprintf(&sample, `%s"w%d":{"n":%d}`, map[bool]string{true: ","}[j > 0], i*70+j, j)
		}
		sample.WriteString("}")
		for j := range 25 {
			fmt.Fprintf(&sample, `,"f%d":1`, j)
		}
		sample.WriteString("}\n")
	}
	got := changesOf(t, "operations:\n  - each: {field: stock, in: map, operations: [convert: {field: n, from: int, to: long}, add: {field: unit, value: kg}]}\n", sample.String())
	want := []string{
		`type stock.<key>.n > stock.<key>.n int to long 700 fields in 1: int 0 > long 0`,
		`added  > stock.<key>.unit  700 fields in 1:  > "kg"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = changesOf(t, "operations:\n  - move: {from: stock, to: at.stock}\n", sample.String())
	if len(got) != 1 || !strings.HasPrefix(got[0], "moved stock.<key>.n > at.stock.<key>.n  700 fields in 1") {
		t.Errorf("a map that moves: %q", got)
	}
	var moves strings.Builder
	for j := range 25 {
		fmt.Fprintf(&moves, "  - rename: {from: f%d, to: g%d}\n", j, j)
	}
	if got = changesOf(t, "operations:\n"+moves.String(), sample.String()); len(got) != 25 {
		t.Errorf("fields of the document are folded: %q", got)
	}
}

// TestComputedIsNotRemovedAndAdded.
func TestComputedIsNotRemovedAndAdded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"compute: {from: [price], to: [cents], up: {cents: 'int(price * 100.0)'}, down: {price: 'double(cents) / 100.0'}}": {
			`computed price > cents  0 fields in 2: double 1.5 > int 150`},
		"compute: {from: [price], to: [price], up: {price: 'string(price)'}, down: {price: 'double(price)'}}": {
			`computed price > price  0 fields in 2: double 1.5 > "1.5"`},
		"compute: {from: [a], to: [at], up: {at: '{\"x\": a, \"y\": {\"z\": a}}'}, down: {a: 'at.x'}}": {
			`computed a >   0 fields in 2: int 1 > `, `computed  > at.x  0 fields in 2:  > int 1`, `computed  > at.y.z  0 fields in 2:  > int 1`},
		"compute: {from: [a, b], to: [b, c], up: {b: 'a', c: 'b'}, down: {a: 'b', b: 'c'}}": {
			`computed b > b  0 fields in 2: int 2 > int 1`, `computed  > c  0 fields in 2:  > int 2`, `computed a >   0 fields in 2: int 1 > `},
	} {
		got := changesOf(t, "operations:\n  - "+text+"\n", `{"_id":1,"price":1.5,"a":1,"b":2} {"_id":2,"price":2.5,"a":1,"b":2}`)
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
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

// TestCompareOfManyNames: many maps of many names take little longer than to read them.
func TestCompareOfManyNames(t *testing.T) {
	t.Parallel()
	var sample strings.Builder
	const records, maps, names = 20, 60, 30
	for i := range records {
		fmt.Fprintf(&sample, `{"_id":%d,"stock":{`, i)
		for m := range maps {
			fmt.Fprintf(&sample, `%s"m%d_%d":{"x":{`, map[bool]string{true: ","}[m > 0], i, m)
			for n := range names {
				fmt.Fprintf(&sample, `%s"w%d_%d":{"n":1}`, map[bool]string{true: ","}[n > 0], m, n)
			}
			sample.WriteString("}}")
		}
		sample.WriteString("}}\n")
	}
	start := time.Now()
	got := changesOf(t, "operations: [{each: {field: stock, in: map, operations: [{each: {field: x, in: map, operations: [{convert: {field: n, from: int, to: long}}]}}]}}]\n", sample.String())
	if took := time.Since(start); took > 5*time.Minute || len(got) != 1 || !strings.HasPrefix(got[0], "type stock.<key>.x.<key>.n") {
		t.Errorf("%.3q in %s", got, took)
	}
}
