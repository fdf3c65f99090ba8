package apiversion_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"

	"dbcontroller/apiversion"
	"dbcontroller/apiversion/listing"
	"dbcontroller/apiversion/prototest"
	"dbcontroller/transform"
)

// drawBook draws a book that the other version can hold.
func drawBook(t *rapid.T, r *apiversion.Resource) *message {
	for {
		b := dynamicpb.NewMessage(r.Old)
		prototest.Draw(t, b)
		shelf, id := rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "shelf"), rapid.SampledFrom([]string{"1", "10", "2", "x"}).Draw(t, "id")
		if r.Old.Fields().ByName("isbn10") != nil {
			put(b, "name", "shelves/"+shelf+"/books/"+id)
			put(b, "pages", rapid.SampledFrom([]string{"", "1", "9", "10", "-2"}).Draw(t, "pages"))
			put(b, "isbn10", "")
		} else {
			put(b, "name", "shelves/"+shelf+"/floors/ground/books/"+id)
			put(b, "summary", "none yet")
			put(b, "last_name", rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "last"))
		}
		if _, err := r.Up(b, nil); err == nil {
			return b
		}
		rapid.Bool().Draw(t, "again")
	}
}

var oldPaths = []string{"name", "title", "author", "pages", "state", "labels.a", "labels.`a.b`", "tags", "place.room", "place.row", "place", "bought", "rating", "isbn10", "etag"}
var newPaths = []string{"name", "display_title", "first_name", "last_name", "page_count", "state", "labels.a", "tags", "place.hall", "place.row", "bought", "rating", "summary"}

func bothWays(t *testing.T, test func(t *testing.T, r *apiversion.Resource, paths []string)) {
	r := bookResource(t)
	t.Run("up", func(t *testing.T) { t.Parallel(); test(t, r, oldPaths) })
	t.Run("down", func(t *testing.T) { t.Parallel(); test(t, r.Reverse(), newPaths) })
}

// TestFiltersSelectTheSame: a translated filter matches the converted message if and only
// if the filter matches the message, or there is an error that names the field.
func TestFiltersSelectTheSame(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *apiversion.Resource, paths []string) {
		drawn, translated, matched := 0, 0, 0
		rapid.Check(t, func(t *rapid.T) {
			drawn++
			f, err := prototest.DrawFilter(t, r.Old, paths, 2).Check(r.Old)
			if err != nil {
				return
			}
			g, err := r.Filter(f)
			if err != nil {
				m := new(transform.MappingError)
				if !errors.As(err, &m) || !slices.Contains(paths, m.Field) {
					t.Fatalf("%s: %v names no field", f, err)
				}
				return
			}
			translated++
			for range 3 {
				old := drawBook(t, r)
				now, err := r.Up(old, nil)
				if err != nil {
					t.Fatal(err)
				}
				if f.Eval(old) != g.Eval(now) {
					t.Fatalf("%s is %t of %v, but %s is %t of %v", f, f.Eval(old), old, g, g.Eval(now), now)
				}
				if f.Eval(old) {
					matched++
				}
			}
		})
		// With -short a fifth is drawn, too little to say how many of them match.
		if translated < drawn/10 || matched == 0 && !testing.Short() {
			t.Errorf("of %d filters only %d were translated, %d matched", drawn, translated, matched)
		}
	})
}

// TestFiltersOnValues hits what random values seldom do.
func TestFiltersOnValues(t *testing.T) {
	t.Parallel()
	r := bookResource(t)
	for _, tc := range []struct{ filter, want string }{
		{`pages == "12"`, `page_count == 12`},
		{`pages != "12"`, `page_count != 12`},
		{`pages == ""`, `page_count == 0`},
		{`pages == "012"`, `page_count in []`}, // v1 shows "12", never "012"
		{`pages in ["1", "01", "2"]`, `page_count in [1, 2]`},
		{`pages == "many"`, "!pages: must be a number"},
		{`pages < "2"`, "!pages: sorts differently"},
		{`author == "Ann Lee"`, `first_name == "Ann" && last_name == "Lee"`},
		{`!(author == "Ann Lee")`, `!(first_name == "Ann" && last_name == "Lee")`},
		{`author in ["Ann Lee", "Bo"]`, `first_name == "Ann" && last_name == "Lee" || first_name == "" && last_name == "Bo"`},
		{`has(author)`, `!(first_name == "" && last_name == "")`},
		{`author.contains("Lee")`, "!author: contains cannot be used"},
		{`name == "shelves/a/books/b"`, `name == "shelves/a/floors/ground/books/b"`},
		{`name.startsWith("shelves/a/")`, `name.startsWith("shelves/a/floors/ground/")`},
		{`name.startsWith("shelves/a")`, "!name: names differ"},
		{`name > "shelves/a"`, "!name: names differ"},
		{`place.room == "x"`, `place.hall == "x"`},
		{`has(place) && state == "LENT"`, "!place: has become several fields"},
		{`state == "LENT" || tags.contains("a") && rating == null`, `state == "LENT" || tags.contains("a") && !has(rating)`},
		{`isbn10 == "1"`, "!isbn10: has no counterpart"},
	} {
		t.Run(tc.filter, func(t *testing.T) {
			t.Parallel()
			f, err := listing.ParseFilter(tc.filter, r.Old)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Filter(f)
			if want, isErr := strings.CutPrefix(tc.want, "!"); isErr && strings.Contains(want, ": ") {
				if err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%s, error %v", got, err)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

// TestResourceLaws: what was put is got, both ways, and edits keep what the other
// version alone has.
func TestResourceLaws(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *apiversion.Resource, _ []string) {
		rapid.Check(t, func(t *rapid.T) {
			old := drawBook(t, r)
			before := proto.CloneOf(old)
			have := drawBook(t, r.Reverse())
			for _, h := range []proto.Message{nil, have} {
				now, err := r.Up(old, h)
				if err != nil {
					t.Fatal(err)
				}
				back, err := r.Down(now, nil)
				if err != nil || !proto.Equal(back, old) {
					t.Fatalf("%v became %v and %v: %v", old, now, back, err)
				}
				again, err := r.Up(back, now)
				if err != nil || !proto.Equal(again, now) {
					t.Fatalf("putting back %v made %v of %v: %v", back, again, now, err)
				}
			}
			if !proto.Equal(old, before) {
				t.Fatal("the converter changed its argument")
			}
		})
	})
}

// TestFiltersOnJoinedFields: fields that have become one are compared together.
func TestFiltersOnJoinedFields(t *testing.T) {
	t.Parallel()
	r := bookResource(t).Reverse()
	for filter, want := range map[string]string{
		`first_name == "Ann" && last_name == "Lee"`:                        `author == "Ann Lee"`,
		`page_count == 1 && last_name == "Lee" && first_name == "Ann"`:     `pages == "1" && author == "Ann Lee"`,
		`first_name == "" && last_name == ""`:                              `author == ""`,
		`first_name == "A" && last_name == "L e"`:                          `author in []`,
		`first_name == "A" && last_name == "B" && last_name == "C"`:        `author == "A B" && author == "A C"`,
		`first_name == "A" && first_name == "X" && last_name == "B"`:       `author == "A B" && author == "X B"`,
		`first_name == "A" && (last_name == "L" || last_name == "M")`:      "",
		`first_name == "A" && last_name.startsWith("L") && summary == "x"`: "",
	} {
		f, err := listing.ParseFilter(filter, r.Old)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Filter(f)
		if want == "" {
			if err == nil {
				t.Errorf("%s became %s", filter, got)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%s became %s, %v", filter, got, err)
		}
	}
}

func TestUpdateMasks(t *testing.T) {
	t.Parallel()
	up := bookResource(t)
	for _, tc := range []struct {
		r          *apiversion.Resource
		mask, want string
	}{
		{up, "title", "display_title"},
		{up, "author", "first_name last_name"},
		{up, "pages labels.x", "page_count labels.x"},
		{up, "place.room place.row", "place.hall place.row"},
		{up, "place", "place"},
		{up, "*", "display_title first_name last_name page_count state labels tags place bought rating etag"},
		{up, "isbn10", "!isbn10: has no counterpart"},
		{up.Reverse(), "first_name last_name", "author"},
		{up.Reverse(), "last_name first_name page_count", "author pages"},
		{up.Reverse(), "first_name", "!first_name: can only be changed together with last_name"},
		{up.Reverse(), "summary", "!summary: has no counterpart"},
		{up.Reverse(), "*", "title author pages state labels tags place bought rating etag"},
	} {
		got, err := tc.r.UpdateMask(&fieldmaskpb.FieldMask{Paths: strings.Fields(tc.mask)})
		if want, isErr := strings.CutPrefix(tc.want, "!"); isErr {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v", tc.mask, err)
			}
			continue
		}
		a, b := slices.Sorted(slices.Values(got.GetPaths())), slices.Sorted(slices.Values(strings.Fields(tc.want)))
		if err != nil || !slices.Equal(a, b) {
			t.Errorf("%s: %v, %v", tc.mask, got.GetPaths(), err)
		}
	}
}

// TestUpdatesAreTheSame: an update with a mask, translated and made in the new version,
// shows in the old version what the update makes there.
func TestUpdatesAreTheSame(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, r *apiversion.Resource, paths []string) {
		rapid.Check(t, func(t *rapid.T) {
			stored, edit := drawBook(t, r.Reverse()), drawBook(t, r)
			var mask fieldmaskpb.FieldMask
			for _, p := range rapid.SliceOfN(rapid.SampledFrom(paths), 1, 4).Draw(t, "mask") {
				if p != "name" {
					mask.Paths = append(mask.Paths, p)
				}
			}
			translated, err := r.UpdateMask(&mask)
			if err != nil || len(mask.Paths) == 0 {
				return // named in TestUpdateMasks
			}
			shown, err := r.Down(stored, nil)
			if err != nil {
				t.Fatal(err)
			}
			whole := proto.Clone(shown)
			if err := listing.Update(whole, edit, &mask); err != nil {
				t.Fatal(err)
			}
			now, err := r.Up(whole, stored)
			if err != nil {
				return // not every mixture can be held
			}
			after := proto.CloneOf(stored)
			if err := listing.Update(after, now, translated); err != nil {
				t.Fatal(err)
			}
			got, err := r.Down(after, nil)
			if err != nil || !proto.Equal(got, whole) {
				t.Fatalf("mask %v became %v: want %v, got %v, %v", mask.Paths, translated.Paths, whole, got, err)
			}
		})
	})
}

// world is one set of books as all four APIs show it: both versions over both versions
// of the data.
type world struct {
	native, translated map[string]client
}

func newWorld(t *testing.T, books []*message) world {
	r := bookResource(t)
	table := libraryTable(t)
	reverse, err := table.Reverse()
	if err != nil {
		t.Fatal(err)
	}
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
			"v2": direct(t, service(t, "v2"), apiversion.NewHandler(reverse, v1.connectHandler(), apiversion.Options{})),
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
	for _, tc := range []struct {
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
	reversed := func(n string) (string, error) {
		b := []byte(n)
		slices.Reverse(b)
		return string(b), nil
	}
	r, err := apiversion.Declare(bookOf(service(t, "v1")), bookOf(service(t, "v2")),
		apiversion.Renamed("title", "display_title"), author, pages, apiversion.Renamed("place.room", "place.hall"),
		apiversion.OnlyOld("isbn10", ""), apiversion.OnlyNew("summary", nil),
		apiversion.Rekeyed(apiversion.Names{Up: reversed, Down: reversed, ParentUp: reversed, ParentDown: reversed}))
	if err != nil {
		t.Fatal(err)
	}
	table, err := apiversion.NewTable(libraryConfig(t, r))
	if err != nil {
		t.Fatal(err)
	}
	v2 := newLibrary(service(t, "v2"))
	v2.add(text(t, bookOf(v2.service), `name: "az"`), text(t, bookOf(v2.service), `name: "ba"`))
	c := direct(t, service(t, "v1"), apiversion.NewHandler(table, v2.connectHandler(), apiversion.Options{}))
	_, err = c.try(t.Context(), "ListBooks", "")
	if err == nil || !strings.Contains(err.Error(), "names must sort the same") {
		t.Errorf("error is %v", err)
	}
}
