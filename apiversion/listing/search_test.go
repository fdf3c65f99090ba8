package listing_test

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/apiversion/listing"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
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

// TestSearchFindsBehindOthers: a search for the best results fills its page although a filter drops
// the best ones, and has no more than the page.
func TestSearchFindsBehindOthers(t *testing.T) {
	t.Parallel()
	read := 0
	src := listing.SearchSource[*secretsv1.Secret]{
		NameField: "name",
		Searched:  func(string) bool { return true },
		Find: func(_ context.Context, req record.SearchRequest) (page record.SearchPage, err error) {
			if req.Limit == 0 {
				req.Limit = 1000
			}
			for i := range req.Limit {
				page.Names = append(page.Names, fmt.Sprint(i))
			}
			return page, nil
		},
		Message: func(_ context.Context, name string) (*secretsv1.Secret, error) {
			read++
			owner := "ada"
			if len(name) == 3 { // from the 101st on
				owner = "bob"
			}
			return &secretsv1.Secret{Name: name, Owner: owner}, nil
		},
	}
	page, err := listing.Search(t.Context(), &secretsv1.SearchSecretsRequest{Query: "x", PageSize: 2, Filter: `owner == "bob"`}, src)
	if err != nil || len(page.Items) != 2 || page.Items[0].GetName() != "100" || page.NextPageToken != "" || read != 102 {
		t.Errorf("%v %v after %d records", page, err, read)
	}
	read = 0
	page, err = listing.Search(t.Context(), &secretsv1.SearchSecretsRequest{Query: "x", PageSize: 2}, src)
	if err != nil || len(page.Items) != 2 || read != 2 {
		t.Errorf("%v %v after %d records", page, err, read)
	}
	src.Find = func(context.Context, record.SearchRequest) (record.SearchPage, error) {
		return record.SearchPage{}, fmt.Errorf("search: %w", &record.SearchTooBroadError{Beginning: "a"})
	}
	if page, err := listing.Search(t.Context(), &secretsv1.SearchSecretsRequest{Query: "a*"}, src); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("%v %v", page, err)
	}
}
