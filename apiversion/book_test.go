package apiversion_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/transform/lens"
)

// bookLens is what became of a book from v1 to v2.
const bookLens = `
lens: 1
key: {from: "shelves/{shelf}/books/{book}", to: "shelves/{shelf}/floors/{floor}/books/{book}", with: {floor: ground}}
operations:
  - rename: {from: title, to: display_title}
  - split: {field: author, to: [first_name, last_name], separator: " ", rest: true}
  - convert: {field: pages, from: string, to: int}
  - rename: {from: pages, to: page_count}
  - rename: {from: place.room, to: place.hall}
  - remove: {field: isbn10, default: ""}
  - add: {field: summary, default: none yet}
`

// lensResource makes a resource of a lens, which maps requests as well. r has the rest.
func lensResource(tb testing.TB, r apiversion.Resource, text string) *apiversion.Resource {
	tb.Helper()
	l, err := lens.Parse("test.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	r.UpMapping, r.DownMapping = l.UpMapping(), l.DownMapping()
	out, err := byDocuments(r, l.Up, l.Down)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func bookResource(tb testing.TB) *apiversion.Resource {
	tb.Helper()
	return lensResource(tb, apiversion.Resource{Old: bookOf(service(tb, "v1")), New: bookOf(service(tb, "v2"))}, bookLens)
}

func lend(ctx context.Context, old proto.Message, now *message, derive func(...string) error) error {
	loan := now.Mutable(now.Descriptor().Fields().ByName("loan")).Message()
	put(loan, "reader", get(old.ProtoReflect(), "reader").String())
	put(loan, "days", int32(14))
	return derive("reader")
}

func libraryConfig(tb testing.TB, r *apiversion.Resource) apiversion.Config {
	return apiversion.Config{
		Old: service(tb, "v1"), New: service(tb, "v2"), Resources: []*apiversion.Resource{r},
		Methods: []apiversion.Method{
			{Old: "ListBooks", New: "SearchBooks"},
			{Old: "LendBook", New: "CheckOut", Request: lend},
			{Old: "BurnBook", Discontinued: "use DeleteBook"},
		},
	}
}

// backTable serves v2 by the handlers of v1.
func backTable(tb testing.TB) *apiversion.Table {
	tb.Helper()
	t, err := apiversion.NewTable(apiversion.Config{
		Old: service(tb, "v2"), New: service(tb, "v1"), Resources: []*apiversion.Resource{bookResource(tb).Reverse()},
		Methods: []apiversion.Method{
			{Old: "SearchBooks", New: "ListBooks", Unset: []string{"total"}},
			{Old: "CheckOut", Discontinued: "use LendBook"},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func libraryTable(tb testing.TB) *apiversion.Table {
	tb.Helper()
	t, err := apiversion.NewTable(libraryConfig(tb, bookResource(tb)))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}
