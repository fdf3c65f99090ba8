package apiversion_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/transform"
)

// world is one set of books as all four APIs show it: both versions over both versions
// of the data.
type world struct {
	native, translated map[string]client
}

func newWorld(t *testing.T, books []*message) world {
	r := bookResource(t)
	table := libraryTable(t)
	v1, v2 := newLibrary(service(t, "v1")), newLibrary(service(t, "v2"))
	for _, b := range books {
		v1.add(b)
		now, err := r.Up(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		v2.add(now.(*message))
	}
	return world{
		native: map[string]client{
			"v1": direct(t, service(t, "v1"), v1.connectHandler()),
			"v2": direct(t, service(t, "v2"), v2.connectHandler()),
		},
		translated: map[string]client{
			"v1": direct(t, service(t, "v1"), apiversion.NewHandler(table, v2.connectHandler(), apiversion.Options{})),
			"v2": direct(t, service(t, "v2"), apiversion.NewHandler(backTable(t), v1.connectHandler(), apiversion.Options{})),
		},
	}
}

// TestTokensGoOnAcrossFlips lists with the version of the data changing between pages,
// at random: nothing is skipped or repeated.
func TestTokensGoOnAcrossFlips(t *testing.T) {
	t.Parallel()
	var books []*message
	for i := range 25 {
		shelf := []string{"a", "a-b", "a.b", "b"}[i%4]
		books = append(books, text(t, bookOf(service(t, "v1")), fmt.Sprintf(
			`name: "shelves/%s/books/%d" title: "t%d" pages: "%d" state: %d bought { seconds: %d nanos: %d } rating: %d author: "A%d B"`, shelf, i, i%3, i%5+1, i%2+1, i%7, i, i%4, i%3)))
	}
	w := newWorld(t, books)
	for i, tc := range []struct {
		version, method, field, request string
	}{
		{"v1", "ListBooks", "books", ``},
		{"v1", "ListBooks", "books", `parent: "shelves/a"`},
		{"v1", "ListBooks", "books", `filter: "pages in [\"1\", \"2\"] || author == \"A1 B\""`},
		{"v1", "ListBooks", "books", `order_by: "title desc, rating"`},
		{"v1", "ListBooks", "books", `order_by: "bought desc" filter: "state == \"LENT\""`},
		{"v1", "ListBooks", "books", `order_by: "state, place.room, title"`},
		{"v1", "ListBooks", "books", `order_by: "name"`},
		{"v1", "ListBooks", "books", `order_by: "name desc"`},
		{"v2", "SearchBooks", "results", ``},
		{"v2", "SearchBooks", "results", `parent: "shelves/a/floors/ground" filter: "page_count != 3"`},
		{"v2", "SearchBooks", "results", `order_by: "rating desc, display_title"`},
	} {
		if raced.On && i%4 != 0 {
			continue // the others take the same way
		}
		t.Run(tc.version+" "+tc.request, func(t *testing.T) {
			native, translated := w.native[tc.version], w.translated[tc.version]
			list := func(c client, size int, token string) ([]string, string) {
				out := c.do(tc.method, fmt.Sprintf(`%s page_size: %d page_token: "%s"`, tc.request, size, token))
				var names []string
				items := get(out, tc.field).List()
				for i := range items.Len() {
					names = append(names, get(items.Get(i).Message(), "name").String())
				}
				return names, get(out, "next_page_token").String()
			}
			all, _ := list(native, 1000, "")
			if len(all) < 3 {
				t.Fatalf("only %v", all)
			}
			rapid.Check(t, func(rt *rapid.T) {
				var got []string
				for token := ""; ; {
					c := native
					if rapid.Bool().Draw(rt, "flipped") {
						c = translated
					}
					var names []string
					names, token = list(c, rapid.IntRange(1, 9).Draw(rt, "size"), token)
					got = append(got, names...)
					if token == "" || len(got) > len(all) {
						break
					}
				}
				if !slices.Equal(got, all) {
					rt.Fatalf("got  %v\nwant %v", got, all)
				}
			})
			// A token is for one request in every version.
			_, token := list(native, 1, "")
			for _, c := range []client{native, translated} {
				_, err := c.try(t.Context(), tc.method, fmt.Sprintf(`page_token: "%s" parent: "shelves/b"`, token))
				if err == nil || !strings.Contains(err.Error(), "belongs to another request") {
					t.Errorf("with another parent: %v", err)
				}
			}
		})
	}
}

// TestNamesThatSortDifferently: a page token could not go on at the same place.
func TestNamesThatSortDifferently(t *testing.T) {
	t.Parallel()
	r := lensResource(t, apiversion.Resource{Old: bookOf(service(t, "v1")), New: bookOf(service(t, "v2"))},
		strings.Replace(bookLens, `"shelves/{shelf}/floors/{floor}/books/{book}"`, `"floors/{floor}/books/{book}/shelves/{shelf}"`, 1))
	table, err := apiversion.NewTable(libraryConfig(t, r))
	if err != nil {
		t.Fatal(err)
	}
	v2 := newLibrary(service(t, "v2"))
	v2.add(text(t, bookOf(v2.service), `name: "floors/ground/books/a/shelves/z"`), text(t, bookOf(v2.service), `name: "floors/ground/books/b/shelves/a"`))
	c := direct(t, service(t, "v1"), apiversion.NewHandler(table, v2.connectHandler(), apiversion.Options{}))
	_, err = c.try(t.Context(), "ListBooks", "")
	if err == nil || !strings.Contains(err.Error(), "names must sort the same") {
		t.Errorf("error is %v", err)
	}
}

// milligrams maps weights of v1 by a function that relies on the type of the field.
type milligrams struct{ transform.Mapping }

func (m milligrams) Order(path string) (string, error) {
	if path == "weight_g" {
		return "weight_mg", nil
	}
	return m.Mapping.Order(path)
}

func (m milligrams) Compare(c transform.Condition) ([]transform.Condition, error) {
	if c.Path == "weight_g" {
		return []transform.Condition{{Path: "weight_mg", Op: c.Op, Values: []any{c.Values[0].(int64) * 1000}}}, nil
	}
	return m.Mapping.Compare(c)
}

// TestTokensMadeUp: functions see no values but those of their fields.
func TestTokensMadeUp(t *testing.T) {
	t.Parallel()
	part := parts(t).Resources[0]
	part.UpMapping = milligrams{part.UpMapping}
	order, err := listing.ParseOrder("weight_g", part.Old)
	if err != nil {
		t.Fatal(err)
	}
	got, err := part.Token(listing.Token{Name: "p", Values: []any{int64(5)}}, order, "")
	if err != nil || len(got.Values) != 1 || got.Values[0] != int64(5000) {
		t.Errorf("%v, %v", got, err)
	}
	for _, v := range []any{"5", 5.5, true, []byte("x")} {
		if got, err := part.Token(listing.Token{Name: "p", Values: []any{v}}, order, ""); err == nil || !strings.Contains(err.Error(), "does not fit the order") {
			t.Errorf("%v became %v, %v", v, got, err)
		}
	}
}
