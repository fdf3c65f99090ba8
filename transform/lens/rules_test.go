package lens_test

import (
	"strings"
	"testing"
)

// TestRulesOfWriters: a lens says what writers of the new version must keep to, and each rule
// is one: what breaks it is refused on the way down, and what keeps to it comes back.
func TestRulesOfWriters(t *testing.T) {
	t.Parallel()
	l := parsed(t, orders(`convert: {field: at, from: epoch, to: date}`, linesByOrder))
	rules := strings.Join(l.Rules(), "\n")
	for _, want := range []string{"at has no milliseconds", "position of a record of lines", "no other one of its parent", "order of a record of lines", "the empty list"} {
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
		back, err := taken(s.Down, fromJSON(t, tc.records...), nil)
		switch {
		case tc.back == "" && err == nil:
			t.Errorf("%s: it came back as %s", name, shown(t, back))
		case tc.back != "" && (err != nil || shown(t, back) != shown(t, fromJSON(t, tc.back))):
			t.Errorf("%s: %v, %s", name, err, shown(t, back))
		}
	}
}
