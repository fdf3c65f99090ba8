package resource

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	libraryv2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/vrunner"
)

// The places of another service change their names.
const placesLens = `
kinds: {from: places, to: places}
key: {from: "places/{place}", to: "cities/{city}/places/{place}", with: {city: graz}}
operations: []
`

// referrer is a service of books in both versions over one store, in which v2 is stored and v1 is
// shown over it. Books refer to places, which another service re-keys.
type referrer struct {
	store *sampletest.Store
	v1    *Table[*libraryv1.Book]
	v2    *Table[*libraryv2.Book]
}

func newReferrer(t *testing.T) referrer {
	t.Helper()
	read := func(text string) *lens.Lens {
		l, err := lens.Parse("k.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	places, err := read(placesLens).KeyMap()
	if err != nil {
		t.Fatal(err)
	}
	registry := transform.NewRegistry("library")
	if err := registry.Add("v1", "v2", read("operations: [rename: {from: library, to: branch}]").Spec("books", "books", lens.Managed())); err != nil {
		t.Fatal(err)
	}
	show, err := registry.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := registry.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	store := sampletest.New(t, "books")
	shown, err := adapt.New(store, show, keep, adapt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return referrer{
		store: store,
		v2:    New[*libraryv2.Book](store, Config[*libraryv2.Book]{Kind: "books", Pattern: "books/{book}", References: []listing.Reference{{Field: "branch", Others: places.Others}}}),
		v1:    New[*libraryv1.Book](vrunner.Over(store, shown), Config[*libraryv1.Book]{Kind: "books", Pattern: "books/{book}", References: []listing.Reference{{Field: "library", Others: places.Others}}}),
	}
}

// put stores a book, whatever it was.
func (s referrer) put(t *testing.T, name, title, home string) {
	t.Helper()
	s.store.Put(t, "books", bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "title", Value: title}, {Key: "branch", Value: home}, {Key: "revision", Value: int64(1)}})
}

// TestReferences: filters by either name of what another service has re-keyed find the same
// books in every state of the records, in the version that is stored and in the one that is
// shown over it, and masks do what they did.
func TestReferences(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for state, homes := range map[string][3]string{
		"old":   {"places/a", "places/b", ""},
		"mixed": {"cities/graz/places/a", "places/b", ""},
		"new":   {"cities/graz/places/a", "cities/graz/places/b", ""},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := newReferrer(t)
			v1, v2 := s.v1, s.v2
			for i, home := range homes {
				s.put(t, "books/"+string(rune('a'+i)), "t", home)
			}
			for filter, want := range map[string]string{
				`HOME == "places/a"`:                             "a",
				`HOME == "cities/graz/places/a"`:                 "a",
				`HOME in ["places/b", "cities/graz/places/a"]`:   "a b",
				`HOME != "cities/graz/places/b"`:                 "a c",
				`HOME.startsWith("places/")`:                     "a b",
				`HOME.startsWith("cities/graz/")`:                "a b",
				`HOME == ""`:                                     "c",
				`HOME == "cities/wien/places/a"`:                 "",
				`HOME == "cities/graz/places/b" && title == "t"`: "b",
			} {
				one, err := v1.List(ctx, &libraryv1.ListRequest{Filter: strings.ReplaceAll(filter, "HOME", "library"), ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"library", "name"}}})
				if err != nil {
					t.Fatal(err)
				}
				two, err := v2.List(ctx, &libraryv2.ListRequest{Filter: strings.ReplaceAll(filter, "HOME", "branch"), ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"branch", "name"}}})
				if err != nil {
					t.Fatal(err)
				}
				var got1, got2 []string
				for _, b := range one.Items {
					id := strings.TrimPrefix(b.GetName(), "books/")
					got1 = append(got1, id)
					if b.GetTitle() != "" || b.GetLibrary() != homes[id[0]-'a'] {
						t.Errorf("v1 shows %v", b)
					}
				}
				for _, b := range two.Items {
					id := strings.TrimPrefix(b.GetName(), "books/")
					got2 = append(got2, id)
					if b.GetTitle() != "" || b.GetBranch() != homes[id[0]-'a'] {
						t.Errorf("v2 shows %v", b)
					}
				}
				if want := strings.Fields(want); !slices.Equal(got1, want) || !slices.Equal(got2, want) {
					t.Errorf("%s: %v in v1, %v in v2, want %v", filter, got1, got2, want)
				}
			}
			// A change of something else leaves the reference, and one of the reference is what it says.
			b, err := v1.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/a", Title: "u", Library: "x"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}}})
			if err != nil || b.GetTitle() != "u" || b.GetLibrary() != homes[0] {
				t.Errorf("the title changed to %v, %v", b, err)
			}
			if b, err = v1.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/a", Library: "places/b"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"library"}}}); err != nil || b.GetLibrary() != "places/b" {
				t.Errorf("the reference changed to %v, %v", b, err)
			}
		})
	}
}

// TestMasksWhileReferencesChange: a client's update by a mask meets the data update that gives the
// record the new reference, between its read and its write. Neither undoes what the other does.
func TestMasksWhileReferencesChange(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const before, after = "places/a", "cities/graz/places/a"
	mask := func(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }
	for name, update := range map[string]func(s referrer, title, home string, mask *fieldmaskpb.FieldMask) (string, string, error){
		"v1": func(s referrer, title, home string, mask *fieldmaskpb.FieldMask) (string, string, error) {
			b, err := s.v1.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/a", Title: title, Library: home}, UpdateMask: mask})
			return b.GetTitle(), b.GetLibrary(), err
		},
		"v2": func(s referrer, title, home string, mask *fieldmaskpb.FieldMask) (string, string, error) {
			b, err := s.v2.Update(ctx, &libraryv2.UpdateBookRequest{Book: &libraryv2.Book{Name: "books/a", Title: title, Branch: home}, UpdateMask: mask})
			return b.GetTitle(), b.GetBranch(), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, tc := range []struct {
				mask        *fieldmaskpb.FieldMask
				title, home string
			}{
				{mask("title"), "u", after},           // the update of references stands
				{mask(), "u", "places/b"},             // all that is given
				{mask(homeOf(name)), "t", "places/b"}, // and the latest write of a reference
			} {
				s := newReferrer(t)
				s.put(t, "books/a", "t", before)
				updated := false
				s.store.BeforeWrite(func([]record.Mutation) error {
					if !updated {
						updated = true
						s.store.BeforeWrite(nil)
						s.put(t, "books/a", "t", after)
					}
					return nil
				})
				title, home, err := update(s, "u", "places/b", tc.mask)
				if err != nil || !updated || title != tc.title || home != tc.home {
					t.Errorf("%v: %s of %q, %v, want %s of %q", tc.mask.GetPaths(), title, home, err, tc.title, tc.home)
				}
			}
		})
	}
}

// homeOf is how a version calls the reference.
func homeOf(version string) string {
	return map[string]string{"v1": "library", "v2": "branch"}[version]
}

// TestLargeRecordsAreComparedByRevision: a database takes no condition of that size besides what is
// written.
func TestLargeRecordsAreComparedByRevision(t *testing.T) {
	t.Parallel()
	revision := &record.Match{Path: "revision"}
	if m := as(make([]byte, wholeBytes), make([]byte, 1), revision); m != revision {
		t.Errorf("it is compared by %q", m.Path)
	}
	if m := as(make([]byte, wholeBytes-1), make([]byte, 1), revision); m == revision {
		t.Error("a smaller one is not compared as a whole")
	}
}
