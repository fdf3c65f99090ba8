package listing_test

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion/listing"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	libraryv1 "dbcontroller.dev/gen/library/v1"
)

// A handler lists the books of a store, one page after the other. Here the store is a slice in the order
// of the names.
func ExampleList() {
	stored := []*libraryv1.Book{
		{Name: "books/dune", Title: "Dune", Copies: &libraryv1.Copies{Total: 2}},
		{Name: "books/emma", Title: "Emma"},
		{Name: "books/solaris", Title: "Solaris", Copies: &libraryv1.Copies{Total: 1}},
		{Name: "books/ubik", Title: "Ubik", Copies: &libraryv1.Copies{Total: 4}},
	}
	source := listing.Source[*libraryv1.Book, *libraryv1.Book]{
		Fetch: func(_ context.Context, after string, limit int) ([]*libraryv1.Book, error) {
			rest := slices.DeleteFunc(slices.Clone(stored), func(b *libraryv1.Book) bool { return b.GetName() <= after })
			return rest[:min(limit, len(rest))], nil
		},
		Name:      func(b *libraryv1.Book) (string, error) { return b.GetName(), nil },
		Message:   func(_ context.Context, b *libraryv1.Book) (*libraryv1.Book, error) { return proto.CloneOf(b), nil },
		NameField: "name",
	}
	req := &libraryv1.ListRequest{Filter: "copies.total > 0", PageSize: 2}
	for {
		page, err := listing.List(context.Background(), req, source)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, b := range page.Items {
			fmt.Println(b.GetTitle())
		}
		if page.NextPageToken == "" {
			return
		}
		fmt.Println("-- next page --")
		req.PageToken = page.NextPageToken
	}
	// Output:
	// Dune
	// Solaris
	// -- next page --
	// Ubik
}

// A filter is checked against the message type when it is parsed.
func ExampleParseFilter() {
	lrp := &bbsv1.DesiredLRP{ProcessGuid: "g", Domain: "apps", Instances: 3, Definition: &bbsv1.Definition{Ports: []uint32{8080}}}
	d := lrp.ProtoReflect().Descriptor()
	f, err := listing.ParseFilter(`domain == "apps" && definition.ports.contains(8080) && !has(routes)`, d)
	fmt.Println(f.Eval(lrp), err)
	_, err = listing.ParseFilter(`instances > "2"`, d)
	fmt.Println(err)
	// Output:
	// true <nil>
	// invalid_argument: filter: instances: is an integer and cannot be compared with a string
}
