package resource_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// books is what a service has beyond the standard methods of its resources.
type books struct {
	libraryv1connect.UnimplementedLibraryServiceHandler
	books *resource.Table[*libraryv1.Book]
}

func (b books) LendBook(ctx context.Context, req *connect.Request[libraryv1.LendBookRequest]) (*connect.Response[libraryv1.Book], error) {
	return apiversion.Respond(b.books.Change(ctx, req.Msg, func(b *libraryv1.Book) error {
		if b.GetCopies().GetLent() >= b.GetCopies().GetTotal() {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("all copies are lent"))
		}
		b.Copies.Lent++
		return nil
	}))
}

// handler is the whole service over a store: a vrunner.View in a server, or one of a newer
// version that transform/adapt shows as this one's.
func handler(store vrunner.Store) http.Handler {
	libraries := resource.New(store, resource.Config[*libraryv1.Library]{Kind: "libraries", Pattern: "libraries/{library}"})
	all := resource.New(store, resource.Config[*libraryv1.Book]{
		Kind: "books", Pattern: "books/{book}", NewID: resource.RandomID,
		Check: func(_ context.Context, b, _ *libraryv1.Book) error {
			if b.GetTitle() == "" {
				return listing.Invalid("title", "is missing")
			}
			return nil
		},
	})
	_, own := libraryv1connect.NewLibraryServiceHandler(books{books: all})
	mux := http.NewServeMux()
	mux.Handle(resource.NewHandler(resource.Service{
		Descriptor: libraryv1.File_library_v1_library_proto.Services().ByName("LibraryService"),
		Tables:     []resource.Standard{libraries, all}, Own: own,
	}))
	return mux
}

// A service of two resources: what is written for it are a check and a method.
func Example() {
	store, err := sampletest.Open("libraries", "books")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(handler(store))
	defer server.Close()
	ctx, api := context.Background(), libraryv1connect.NewLibraryServiceClient(server.Client(), server.URL)

	made, err := api.CreateBook(ctx, connect.NewRequest(&libraryv1.CreateBookRequest{
		BookId: "dune", Book: &libraryv1.Book{Title: "Dune", Copies: &libraryv1.Copies{Total: 1}},
	}))
	fmt.Println(made.Msg.GetName(), err)
	for range 2 {
		lent, err := api.LendBook(ctx, connect.NewRequest(&libraryv1.LendBookRequest{Name: "books/dune"}))
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("lent:", lent.Msg.GetCopies().GetLent())
	}
	list, err := api.ListBooks(ctx, connect.NewRequest(&libraryv1.ListRequest{Filter: `title.startsWith("D") && copies.lent == 1`}))
	fmt.Println(len(list.Msg.GetBooks()), err)
	_, err = api.CreateBook(ctx, connect.NewRequest(&libraryv1.CreateBookRequest{Book: &libraryv1.Book{}}))
	fmt.Println(err)
	// Output:
	// books/dune <nil>
	// lent: 1
	// failed_precondition: all copies are lent
	// 1 <nil>
	// invalid_argument: title: is missing
}

func ExampleNew() {
	store, err := sampletest.Open("books")
	if err != nil {
		return
	}
	checkBook := func(_ context.Context, b, _ *libraryv1.Book) error {
		if b.GetTitle() == "" {
			return listing.Invalid("title", "is missing")
		}
		return nil
	}
	books := resource.New(store, resource.Config[*libraryv1.Book]{
		Kind: "books", Pattern: "libraries/{library}/books/{book}", Check: checkBook,
	})
	_ = books
}

// A library with books cannot be deleted.
func ExampleTable_Refer() {
	store, err := sampletest.Open("libraries", "books")
	if err != nil {
		return
	}
	libraries := resource.New(store, resource.Config[*libraryv1.Library]{Kind: "libraries", Pattern: "libraries/{library}"})
	books := resource.New(store, resource.Config[*libraryv1.Book]{Kind: "books", Pattern: "books/{book}"})
	books.Refer(resource.Target{Field: "library", Table: libraries, TargetDelete: resource.Block})
	ctx := context.Background()
	_, errLibrary := libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/main"})
	_, errBook := books.Insert(ctx, &libraryv1.Book{Name: "books/dune", Library: "libraries/main"})
	fmt.Println(errLibrary, errBook)
	fmt.Println(libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/main"}))
	// Output:
	// <nil> <nil>
	// libraries/main: failed_precondition: it, or what is deleted with it, is still referred to: 1 books by library: delete or change these first
}
