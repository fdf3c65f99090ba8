package apiversion_test

import (
	"strings"
	"testing"

	"dbcontroller.dev/apiversion"
)

func TestTableIsChecked(t *testing.T) {
	t.Parallel()
	r := bookResource(t)
	for _, tc := range []struct {
		name, want string
		edit       func(*apiversion.Config)
	}{
		{"complete", "", func(*apiversion.Config) {}},
		{"no service", "both services must be given", func(c *apiversion.Config) { c.New = nil }},
		{"no resource", `title`, func(c *apiversion.Config) { c.Resources = nil }},
		{"resource of another service", "no method of prototest.library.v2.Library has a prototest.library.v1.Book", func(c *apiversion.Config) {
			other := *r
			other.New = r.Old
			c.Resources = []*apiversion.Resource{&other}
		}},
		{"half a resource", "Up, Down and both mappings must be given", func(c *apiversion.Config) {
			c.Resources = []*apiversion.Resource{{Old: r.Old, New: r.New}}
		}},
		{"no such name field", "no string field pages2 to be its name", func(c *apiversion.Config) {
			other := *r
			other.OldName = "pages2"
			c.Resources = []*apiversion.Resource{&other}
		}},
		{"old method unknown", "has no method Burn", func(c *apiversion.Config) { c.Methods = append(c.Methods, apiversion.Method{Old: "Burn"}) }},
		{"method twice", "LendBook is there twice", func(c *apiversion.Config) { c.Methods = append(c.Methods, apiversion.Method{Old: "LendBook"}) }},
		{"new method unknown", `method ListBooks: prototest.library.v2.Library has no method "ListBooks"`, func(c *apiversion.Config) { c.Methods = c.Methods[1:] }},
		{"both discontinued and served", "it is discontinued and served by DeleteBook", func(c *apiversion.Config) { c.Methods[2].New = "DeleteBook" }},
		{"streams differently", "WatchBooks streams differently", func(c *apiversion.Config) { c.Methods[0].New = "WatchBooks" }},
		{"response without the resource", "its response is a prototest.library.v1.Book, and google.protobuf.Empty has none", func(c *apiversion.Config) {
			c.Methods = append(c.Methods, apiversion.Method{Old: "GetBook", New: "DeleteBook"})
		}},
		{"response field without source", "books of its response has no counterpart in prototest.library.v2.Book", func(c *apiversion.Config) { c.Methods[0].New = "GetBook" }},
		{"request field paired with nothing", "has no field nothing", func(c *apiversion.Config) {
			c.Methods[0].RequestFields = map[string]string{"only_new": "nothing"}
		}},
		{"request field paired with another type", "only_new is of another type", func(c *apiversion.Config) {
			c.Methods[0].RequestFields = map[string]string{"only_new": "page_size"}
		}},
		{"role unknown", "has no field flt that fits its role", func(c *apiversion.Config) { c.Methods[0].OldRoles.Filter = "flt" }},
		{"role of another type", "has no field only_new that fits its role", func(c *apiversion.Config) { c.Methods[0].OldRoles.PageToken = "only_new" }},
		{"resource unknown", "resource Journal is not in the table", func(c *apiversion.Config) { c.Methods[0].Resource = "Journal" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := libraryConfig(t, r)
			tc.edit(&cfg)
			_, err := apiversion.NewTable(cfg)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v", err)
			}
		})
	}
}
