package lens_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// TestEmptyPresent: with empty: present a record born in the new version without entries comes
// back with the empty list, a list that loses its last entry there stays a list, and a record
// that did without the field goes on without it.
func TestEmptyPresent(t *testing.T) {
	t.Parallel()
	const (
		list = `{field: lines, as: list, kind: lines, key: "{_key}/{id}", id: sku, empty: present}`
		asIs = `{field: notes, as: map, kind: notes, key: "{_key}/{id}", empty: present}`
		deep = `{field: o.lines, as: list, kind: lines, key: "{_key}/{index}", empty: present}`
	)
	for name, tc := range map[string]struct {
		lens, from, holds, want string // JSON of a record
	}{
		"born in the new version":         {list, `{"_id":"o"}`, "", `{"_id":"o","lines":[]}`},
		"a map":                           {asIs, `{"_id":"o"}`, "", `{"_id":"o","notes":{}}`},
		"it states the empty list":        {list, `{"_id":"o","lines":[]}`, "", `{"_id":"o","lines":[]}`},
		"null":                            {list, `{"_id":"o","lines":null}`, "", `{"_id":"o","lines":null}`},
		"the last entry is gone":          {list, `{"_id":"o","x":1}`, `{"_id":"o","lines":[{"sku":"a"}],"x":1}`, `{"_id":"o","lines":[],"x":1}`},
		"the old record does without":     {list, `{"_id":"o","x":2}`, `{"_id":"o","x":1}`, `{"_id":"o","x":2}`},
		"its object is not there":         {deep, `{"_id":"o"}`, "", `{"_id":"o"}`},
		"its object is there":             {deep, `{"_id":"o","o":{"k":1}}`, "", `{"_id":"o","o":{"k":1,"lines":[]}}`},
		"its object is there, and has no": {deep, `{"_id":"o","o":{"k":1}}`, `{"_id":"o","o":{"k":1}}`, `{"_id":"o","o":{"k":1}}`},
	} {
		for _, verb := range []string{"fanOut", "gather"} {
			t.Run(name+" "+verb, func(t *testing.T) {
				t.Parallel()
				l := lenstest.Parse(t, lenstest.Orders(verb+": "+tc.lens))
				s := l.Spec("old", "new")
				back, there, from, to := s.Down, s.Up, "new ", "old "
				if verb == "gather" {
					back, there, from, to = s.Up, s.Down, to, from
				}
				var holds []record.Record
				if tc.holds != "" {
					holds = lenstest.FromJSON(t, to+tc.holds)
				}
				x := lenstest.FromJSON(t, from+tc.from)
				got := lenstest.MustTake(t, back, x, holds)
				if lenstest.Show(t, got) != lenstest.Show(t, lenstest.FromJSON(t, to+tc.want)) {
					t.Errorf("it came back as\n%s", lenstest.Show(t, got))
				}
				if again := lenstest.MustTake(t, there, got, x); !lenstest.SameBytes(again, x) {
					t.Errorf("it became\n%s", lenstest.Show(t, again))
				}
				for _, rule := range l.Rules() {
					if strings.Contains(rule, "the empty") {
						t.Errorf("a rule for nothing: %s", rule)
					}
				}
			})
		}
	}
	for text, want := range map[string]string{
		`fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{index}", empty: never}`:                                                             `empty: unknown rule "never"; allowed: absent, present`,
		`fanOut: {field: plan, as: object, kind: plans, key: "{_key}", empty: present}`:                                                                  "empty is for a list or map",
		`gather: {field: lines, as: list, kind: lines, key: "{_key}/{index}", empty: present}` + "\n  - split: {field: lines, to: [a, b], separator: x}": "a later operation works on lines: write gather after it",
	} {
		if _, err := lens.Parse("x.yaml", []byte(lenstest.Orders(text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestRulesOfWriters: a lens says what writers of the new version must keep to, and each rule
// is one: what breaks it is refused on the way down, and what keeps to it comes back.
func TestRulesOfWriters(t *testing.T) {
	t.Parallel()
	l := lenstest.Parse(t, lenstest.Orders(`convert: {field: at, from: epoch, to: date}`, lenstest.LinesByOrder))
	rules := strings.Join(l.Rules(), "\n")
	for _, want := range []string{"at has no milliseconds", "position of a record of lines", "no other record of its parent", "order of a record of lines", "the empty list"} {
		if !strings.Contains(rules, want) {
			t.Errorf("no rule says %q:\n%s", want, rules)
		}
	}
	s := l.Spec("old", "new")
	for name, tc := range map[string]struct {
		records []string
		back    string // empty: it is refused
	}{
		"milliseconds":            {records: []string{`new {"_id":"o","at":{"$date":{"$numberLong":"10250"}}}`}},
		"a place twice":           {records: []string{`new {"_id":"o"}`, `lines {"_id":"o/a","order":"o","position":1,"sku":"a"}`, `lines {"_id":"o/b","order":"o","position":1,"sku":"b"}`}},
		"no such parent":          {records: []string{`new {"_id":"o"}`, `lines {"_id":"o/a","order":"p","position":1,"sku":"a"}`}},
		"places with gaps":        {[]string{`new {"_id":"o"}`, `lines {"_id":"o/a","order":"o","position":7,"sku":"a"}`, `lines {"_id":"o/b","order":"o","position":3,"sku":"b"}`}, `old {"_id":"o","lines":[{"sku":"b"},{"sku":"a"}]}`},
		"an empty list is stated": {[]string{`new {"_id":"o","lines":[]}`}, `old {"_id":"o","lines":[]}`},
		"no list is stated":       {[]string{`new {"_id":"o"}`}, `old {"_id":"o"}`},
	} {
		back, err := lenstest.Take(s.Down, lenstest.FromJSON(t, tc.records...), nil)
		switch {
		case tc.back == "" && err == nil:
			t.Errorf("%s: it came back as %s", name, lenstest.Show(t, back))
		case tc.back != "" && (err != nil || lenstest.Show(t, back) != lenstest.Show(t, lenstest.FromJSON(t, tc.back))):
			t.Errorf("%s: %v, %s", name, err, lenstest.Show(t, back))
		}
	}
}
