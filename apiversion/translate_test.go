package apiversion_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/transform"
)

// drawBook draws a book that the other version can hold.
func drawBook(t *rapid.T, r *apiversion.Resource) *message {
	for {
		b := dynamicpb.NewMessage(r.Old)
		prototest.Draw(t, b)
		shelf, id := rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "shelf"), rapid.SampledFrom([]string{"1", "10", "2", "x"}).Draw(t, "id")
		if r.Old.Fields().ByName("isbn10") != nil {
			put(b, "name", "shelves/"+shelf+"/books/"+id)
			put(b, "isbn10", "")
			redraw(t, b, "author", "a b", "ab b", "a b c", " a", "a ")
			redraw(t, b, "pages", "1", "9", "10", "-2")
		} else {
			put(b, "name", "shelves/"+shelf+"/floors/ground/books/"+id)
			put(b, "summary", "none yet")
			if redraw(t, b, "first_name", "a", "ab", ""); has(b, "first_name") {
				put(b, "last_name", rapid.SampledFrom([]string{"a", "b", "ab", "a b"}).Draw(t, "last"))
			} else {
				b.Clear(b.Descriptor().Fields().ByName("last_name"))
			}
		}
		if _, err := r.Up(b, nil); err == nil {
			return b
		}
		rapid.Bool().Draw(t, "again")
	}
}

// redraw replaces what was drawn for a text of which the other version can hold few.
func redraw(t *rapid.T, b *message, field string, of ...string) {
	if has(b, field) {
		put(b, field, rapid.SampledFrom(of).Draw(t, field))
	}
}

func has(m protoreflect.Message, name string) bool {
	return m.Has(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
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
		if (translated < drawn/10 || matched == 0) && !raced.FewDrawn() {
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
		{`pages == ""`, `page_count in []`},
		{`pages == "012"`, `page_count in []`}, // v1 shows "12", never "012"
		{`pages in ["1", "01", "2"]`, `page_count in [1, 2]`},
		{`pages == "many"`, `page_count in []`},
		{`pages < "2"`, "!pages: the types do not sort the same"},
		{`author == "Ann Lee"`, `first_name == "Ann" && last_name == "Lee"`},
		{`!(author == "Ann Lee")`, `!(first_name == "Ann" && last_name == "Lee")`},
		{`author in ["Ann Lee", "Bo van Li"]`, `first_name == "Ann" && last_name == "Lee" || first_name == "Bo" && last_name == "van Li"`},
		{`author == "Bo"`, `first_name in []`}, // v1 has no author of one word
		{`author.startsWith("Ann L")`, `first_name == "Ann" && last_name.startsWith("L")`},
		{`has(author)`, `has(first_name) && has(last_name)`},
		{`author.contains("Lee")`, "!author: only ==, in and has can be mapped"},
		{`name == "shelves/a/books/b"`, `name == "shelves/a/floors/ground/books/b"`},
		{`name.startsWith("shelves/a/")`, `name.startsWith("shelves/a/floors/ground/")`},
		{`name.startsWith("shelves/a")`, "!name: names differ"},
		{`name > "shelves/a"`, "!name: names differ"},
		{`place.room == "x"`, `place.hall == "x"`},
		{`has(place) && state == "LENT"`, "!place: it is an object whose fields differ"},
		{`state == "LENT" || tags.contains("a") && rating == null`, `state == "LENT" || tags.contains("a") && !has(rating)`},
		{`isbn10 == "1"`, "!isbn10: the other version does not have it"},
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
		`first_name == "Ann" && last_name == "Lee"`:                         `author == "Ann Lee"`,
		`page_count == 1 && last_name == "Lee" && first_name == "Ann"`:      `pages == "1" && author == "Ann Lee"`,
		`first_name == "" && last_name == ""`:                               `author == " "`,
		`first_name == "A b" && last_name == "L"`:                           `author in []`,
		`first_name == "A" && last_name == "L" && summary == "x"`:           "",
		`first_name == "A" && last_name == "B" && last_name == "C"`:         "",
		`first_name == "A" && (last_name == "L" || last_name == "M")`:       "",
		`first_name == "A" && last_name.startsWith("L") && page_count == 1`: "",
		`page_count == 1 && first_name == "A"`:                              `pages == "1" && author.startsWith("A ")`,
		`name in [] && first_name == "A" && last_name == "L"`:               `name in [] && author == "A L"`,
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
		{up, "isbn10", "!isbn10: the other version does not have it"},
		{up.Reverse(), "first_name last_name", "author"},
		{up.Reverse(), "last_name first_name page_count", "author pages"},
		{up.Reverse(), "first_name", "!first_name: can only be changed together with last_name"},
		{up.Reverse(), "summary", "!summary: the other version does not have it"},
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
