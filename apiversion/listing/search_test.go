package listing_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/record"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][]record.SearchTerm{
		"":                        nil,
		"  \t":                    nil,
		"one  two":                {{Text: "one"}, {Text: "two"}},
		`"one two"`:               {{Text: "one two"}},
		`"one two"*`:              {{Text: "one two", Prefix: true}},
		"wor*":                    {{Text: "wor", Prefix: true}},
		"owner.email:a@b.c":       {{Field: "owner.email", Text: "a@b.c"}},
		`-title:"one: two" three`: {{Field: "title", Text: "one: two", Not: true}, {Text: "three"}},
		"title:wor*":              {{Field: "title", Text: "wor", Prefix: true}},
		"us-west2":                {{Text: "us-west2"}},
		"-one":                    {{Text: "one", Not: true}},
		"a:b:c":                   {{Field: "a", Text: "b:c"}},
		":a":                      {{Text: ":a"}},
		"жук":                     {{Text: "жук"}},
	} {
		got, err := listing.ParseQuery(query)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", query, err, diff)
		}
	}
	for _, query := range []string{"-", "a -", `"a`, `""`, "*", "a:", "a:*", "-a:", "--"} {
		if got, err := listing.ParseQuery(query); err == nil {
			t.Errorf("%s: %+v", query, got)
		}
	}
}
