package apiversion_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"dbcontroller/apiversion"
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

func TestDifferencesAreChecked(t *testing.T) {
	t.Parallel()
	old, now := bookOf(service(t, "v1")), bookOf(service(t, "v2"))
	all := []apiversion.Difference{
		apiversion.Renamed("title", "display_title"), author, pages, rekeyed, apiversion.Renamed("place.room", "place.hall"),
		apiversion.OnlyOld("isbn10", ""), apiversion.OnlyNew("summary", nil),
	}
	without := func(i int, more ...apiversion.Difference) []apiversion.Difference {
		return append(append(append([]apiversion.Difference{}, all[:i]...), all[i+1:]...), more...)
	}
	for _, tc := range []struct {
		want string
		made []apiversion.Difference
	}{
		{"", all},
		{"title has no counterpart in prototest.library.v2.Book: declare a difference", without(0)},
		{"place.room has no counterpart in prototest.library.v2.Place", without(4)},
		{"isbn10 has no counterpart", without(5)},
		{"summary has no counterpart in prototest.library.v1.Book", without(6)},
		{"it has no field tittle", without(0, apiversion.Renamed("tittle", "display_title"))},
		{"it has no field dsplay_title", without(0, apiversion.Renamed("title", "dsplay_title"))},
		{"two differences name isbn10", append(all[:len(all):len(all)], apiversion.OnlyOld("isbn10", ""))},
		{"pages is of another type", without(2, apiversion.Renamed("pages", "page_count"))},
		{"Names needs all four", without(3, apiversion.Rekeyed(apiversion.Names{}))},
	} {
		_, err := apiversion.Declare(old, now, tc.made...)
		if tc.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("want %q, got %v", tc.want, err)
		}
	}
}

// TestJoined declares from the side of the many what author declares from that of the one.
func TestJoined(t *testing.T) {
	t.Parallel()
	r, err := apiversion.Declare(bookOf(service(t, "v2")), bookOf(service(t, "v1")),
		apiversion.Renamed("display_title", "title"), apiversion.Renamed("place.hall", "place.room"), apiversion.OnlyOld("summary", "none yet"), apiversion.OnlyNew("isbn10", nil),
		apiversion.Converted("page_count", "pages", func(x any) (any, error) { return fmt.Sprint(x), nil }, func(x any) (any, error) { return strconv.ParseInt(x.(string), 10, 32) }),
		apiversion.Joined([]string{"first_name", "last_name"}, "author",
			func(x []any) (any, error) { return x[0].(string) + "," + x[1].(string), nil },
			func(x any) ([]any, error) {
				first, last, _ := strings.Cut(x.(string), ",")
				return []any{first, last}, nil
			}))
	if err != nil {
		t.Fatal(err)
	}
	up, err := r.Up(text(t, r.Old, `first_name: "Ann" page_count: 3`), nil)
	if want := text(t, r.New, `author: "Ann," pages: "3"`); err != nil || !proto.Equal(up, want) {
		t.Errorf("up %v, %v", up, err)
	}
	down, err := r.Down(text(t, r.New, `author: "Ann,Lee"`), nil)
	if want := text(t, r.Old, `first_name: "Ann" last_name: "Lee" summary: "none yet"`); err != nil || !proto.Equal(down, want) {
		t.Errorf("down %v, %v", down, err)
	}
	if _, err := r.Up(text(t, r.Old, `first_name: "A,B" last_name: "C"`), nil); err == nil || !strings.Contains(err.Error(), "first_name, last_name: has a value that the other version cannot hold exactly") {
		t.Errorf("an ambiguous value: %v", err)
	}
}
