package lint_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/transform/lens/lint"
)

// TestWritten: records of the new version that break a rule for its writers fail in the lint
// and not first in the reverse sync, and those that keep the rules come back.
func TestWritten(t *testing.T) {
	t.Parallel()
	const text = `
kinds: {from: orders, to: orders}
operations:
  - convert: {field: at, from: epoch, to: date}
  - add: {field: state, default: new}
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{id}", id: sku, order: position, parent: order, empty: EMPTY}
`
	for name, tc := range map[string]struct {
		orders, lines string
		want          string // of a failure; empty: none
	}{
		"good":            {`{"_id":"o","state":"done","at":{"$date":{"$numberLong":"9000"}}} {"_id":"p","lines":[]} {"_id":"q"}`, `{"_id":"o/a","order":"o","position":7,"sku":"a"} {"_id":"o/b","order":"o","position":3,"sku":"b"}`, ""},
		"milliseconds":    {`{"_id":"o","at":{"$date":{"$numberLong":"9001"}}}`, "", "it has milliseconds"},
		"one place twice": {`{"_id":"o"}`, `{"_id":"o/a","order":"o","position":1,"sku":"a"} {"_id":"o/b","order":"o","position":1,"sku":"b"}`, "have the same position"},
		"no parent":       {`{"_id":"o"}`, `{"_id":"p/a","order":"p","position":1,"sku":"a"}`, "to a missing record"},
		"another name":    {`{"_id":"o"}`, `{"_id":"o/x","order":"o","position":1,"sku":"a"}`, "its position give the key"},
	} {
		for _, empty := range []string{"absent", "present"} {
			t.Run(name+" "+empty, func(t *testing.T) {
				t.Parallel()
				written := []lint.Sample{of(t, "orders", tc.orders)}
				if tc.lines != "" {
					written = append(written, of(t, "lines", tc.lines))
				}
				r := linted(t, loaded(t, "orders.yaml", strings.ReplaceAll(text, "EMPTY", empty)), lint.Options{Written: written})
				if broken := brokenLaws(r); broken != nil || len(r.Written) != len(written) || len(r.Sample) > 0 {
					t.Errorf("broken: %v, %+v", broken, r)
				}
				for _, l := range r.Losses {
					if l.Operation == "" {
						t.Errorf("a loss that the lens does not know: %+v", l)
					}
				}
				if tc.want == "" {
					if len(r.Failures) > 0 || r.Laws[len(r.Laws)-1].Tried != 3 {
						t.Errorf("%+v, %+v", r.Failures, r.Laws)
					}
					return
				}
				if len(r.Failures) != 1 || r.Failures[0].Direction != "down" || !strings.Contains(r.Failures[0].Operation+" "+r.Failures[0].Reason, tc.want) {
					t.Errorf("%+v, want %q", r.Failures, tc.want)
				}
			})
		}
	}
	// Two records of the new version that would be one of the old.
	r := linted(t, loaded(t, "items.yaml", "kinds: {from: items, to: items}\nkey: {from: \"{i:int}\", to: \"{i:number}\"}\noperations: []\n"),
		lint.Options{Written: []lint.Sample{of(t, "items", `{"_id":1} {"_id":1}`)}})
	if r.Collisions.Keys != 1 || len(r.Problems()) != 1 {
		t.Errorf("%+v, %v", r.Collisions, r.Problems())
	}
}
