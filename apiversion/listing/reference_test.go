package listing_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/apiversion/listing"
)

// TestReferring: each comparison of a reference is met by either name, negated or not, and the
// others are what they were.
func TestReferring(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	others := func(name string) []string {
		if rest, old := strings.CutPrefix(name, "users/"); old {
			return []string{"orgs/acme/users/" + rest}
		}
		if rest, now := strings.CutPrefix(name, "orgs/acme/users/"); now {
			return []string{"users/" + rest}
		}
		return nil
	}
	refs := []listing.Reference{{Field: "name", Others: others}, {Field: "texts", Others: others}, {Field: "items.key", Others: others}, {Field: "labels.*", Others: others}}
	states := []string{
		`name: "users/ann" texts: "users/bob" items { key: "users/eve" } labels { key: "a" value: "users/dan" } opt_text: "users/ann"`,
		`name: "orgs/acme/users/ann" texts: "orgs/acme/users/bob" items { key: "orgs/acme/users/eve" } labels { key: "a" value: "orgs/acme/users/dan" } opt_text: "users/ann"`,
	}
	for filter, want := range map[string]bool{
		`name == "users/ann"`:                                    true,
		`name == "orgs/acme/users/ann"`:                          true,
		`name == "users/bob"`:                                    false,
		`name != "users/ann"`:                                    false,
		`!(name in ["x", "orgs/acme/users/ann"])`:                false,
		`name.startsWith("users/a")`:                             true,
		`name.startsWith("orgs/acme/")`:                          true,
		`name.startsWith("orgs/other/")`:                         false,
		`texts.contains("users/bob")`:                            true,
		`texts.contains("orgs/acme/users/bob")`:                  true,
		`texts.contains("users/ann")`:                            false,
		`items.key == "orgs/acme/users/eve"`:                     true,
		`labels.a == "users/dan" || false`:                       true,
		`labels.b == "users/dan"`:                                false,
		`opt_text == "orgs/acme/users/ann"`:                      false, // no reference
		`has(name) && texts.contains("orgs/acme/users/bob")`:     true,
		`name == "users/ann" && name == "orgs/acme/users/ann"`:   true,
		`!(name == "users/ann") || texts.contains("users/none")`: false,
	} {
		f, err := listing.ParseFilter(filter, d)
		if err == nil {
			f, err = f.Referring(d, refs)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range states {
			if f.Eval(message(t, d, state)) != want {
				t.Errorf("%s does not answer %v for %s", filter, want, state)
			}
		}
	}
}

// TestReferringBoth: names of which one does not follow from the other are found in the list of both.
func TestReferringBoth(t *testing.T) {
	t.Parallel()
	d := kinds(t)
	refs := []listing.Reference{{Field: "name", Both: "texts"}}
	for _, name := range []string{"teams/a", "orgs/x/teams/a"} {
		m := message(t, d, `name: "`+name+`" texts: "teams/a" texts: "orgs/x/teams/a"`)
		for filter, want := range map[string]bool{
			`name == "teams/a"`:                true,
			`name in ["orgs/x/teams/a"]`:       true,
			`name.startsWith("orgs/")`:         true,
			`name != "orgs/x/teams/a"`:         false,
			`name == "orgs/y/teams/a"`:         false,
			`has(name)`:                        true,
			`name.contains("ms/a")`:            true,
			`texts.contains("orgs/y/teams/a")`: false,
		} {
			f, err := listing.ParseFilter(filter, d)
			if err == nil {
				f, err = f.Referring(d, refs)
			}
			if err != nil || f.Eval(m) != want {
				t.Errorf("%s does not answer %v for %s: %v", filter, want, name, err)
			}
		}
	}
}

func TestReferenceCheck(t *testing.T) {
	t.Parallel()
	others := func(string) []string { return nil }
	for want, r := range map[string]listing.Reference{
		"has no field nobody":                           {Field: "nobody", Others: others},
		"i32 is no string and no list of strings":       {Field: "i32", Others: others},
		"labels is no string and no list of strings":    {Field: "labels", Others: others},
		"name: set Others or Both":                      {Field: "name"},
		"opt_text is no list of strings":                {Field: "name", Both: "opt_text"},
		"has no field gone":                             {Field: "name", Both: "gone"},
		"numbers is no list of strings: it cannot hold": {Field: "name", Both: "numbers"},
	} {
		if err := r.Check(kinds(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
}
