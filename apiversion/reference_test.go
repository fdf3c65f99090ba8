package apiversion_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform/lens"
)

// TestReferences: where New holds the new names of another service, filters of Old by either
// name become the same.
func TestReferences(t *testing.T) {
	t.Parallel()
	read := func(text string) *lens.Lens {
		l, err := lens.Parse("k.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	users := read("key: {from: 'users/{user}', to: 'orgs/{org}/users/{user}', with: {org: acme}}\noperations: []")
	l := read("operations:\n  - reference: {field: opt_text, kind: users}\n  - reference: {field: texts, kind: users, list: true}\n")
	set := lens.NewSet()
	set.Add("users", "users", users)
	set.Add("k", "k", l)
	if err := set.Link(); err != nil {
		t.Fatal(err)
	}
	keys, err := users.KeyMap()
	if err != nil {
		t.Fatal(err)
	}
	d := prototest.Message(t, "kinds.proto", "Kinds")
	of := apiversion.Resource{
		Old: d, New: d, UpMapping: l.UpMapping(), DownMapping: l.DownMapping(), SameNames: true,
		References: []listing.Reference{{Field: "opt_text", Others: keys.Others}, {Field: "texts", Others: keys.Others}},
	}
	r, err := byDocuments(of, l.Up, l.Down)
	if err != nil {
		t.Fatal(err)
	}
	const one, list = `opt_text in ["orgs/acme/users/ann"]`, `texts.contains("orgs/acme/users/ann")`
	for filter, want := range map[string]string{
		`opt_text == "users/ann"`:                                one,
		`opt_text == "orgs/acme/users/ann"`:                      one,
		`opt_text in ["users/ann"]`:                              one,
		`opt_text != "orgs/acme/users/ann"`:                      "!(" + one + ")",
		`opt_text == "nobody"`:                                   "opt_text in []",
		`opt_text == "orgs/acme/users/ann" && name == "x"`:       one + ` && name == "x"`,
		`texts.contains("users/ann")`:                            list,
		`texts.contains("orgs/acme/users/ann")`:                  list,
		`opt_text.startsWith("users/")`:                          `opt_text.startsWith("orgs/acme/users/")`,
		`has(opt_text) || texts.contains("orgs/acme/users/ann")`: `has(opt_text) || ` + list,
	} {
		f, err := listing.ParseFilter(filter, d)
		if err == nil {
			f, err = r.Filter(f)
		}
		if got := f.String(); err != nil || got != want {
			t.Errorf("%s becomes %s, %v; want %s", filter, got, err, want)
		}
	}
	of.References = []listing.Reference{{Field: "gone", Others: keys.Others}}
	if _, err := byDocuments(of, l.Up, l.Down); err == nil || !strings.Contains(err.Error(), "References: prototest.Kinds has no field gone") {
		t.Errorf("a reference that is not there: %v", err)
	}
}
