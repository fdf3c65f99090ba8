package library

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"dbcontroller.dev"
	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	v1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
	"dbcontroller.dev/resource"
)

var apiV1 = v1.File_library_v1_library_proto.Services().ByName("LibraryService")

// serviceV1 adds v1's own methods to the standard methods of its two resources.
type serviceV1 struct {
	libraryv1connect.UnimplementedLibraryServiceHandler
	libraries *resource.Table[*v1.Library]
	books     *resource.Table[*v1.Book]
}

func mountV1(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
	s := &serviceV1{}
	s.libraries = resource.New(data, resource.Config[*v1.Library]{Kind: "libraries", Pattern: "libraries/{library}"})
	s.books = resource.New(data, resource.Config[*v1.Book]{
		Kind: "books", Pattern: "books/{book}", NewID: resource.RandomID, Check: s.checkBook,
		Parts: resource.PartsOf("copies", "copies",
			func(b *v1.Book) map[string]*v1.Copies { return map[string]*v1.Copies{"copies": b.GetCopies()} },
			func(b *v1.Book, parts map[string]*v1.Copies) error { b.Copies = parts["copies"]; return nil }),
	})
	s.books.Refer(resource.Target{Field: "library", Table: s.libraries, TargetDelete: resource.Block})
	_, own := libraryv1connect.NewLibraryServiceHandler(s, opts...)
	mux.Handle(resource.NewHandler(resource.Service{
		Descriptor: apiV1, Tables: []resource.Standard{s.libraries, s.books}, Own: own, Options: opts,
	}))
}

func (s *serviceV1) checkBook(_ context.Context, b, _ *v1.Book) error {
	// A client may leave the copies out; their record must exist all the same.
	if b.Copies == nil {
		b.Copies = &v1.Copies{}
	}
	if err := checkBook(b.GetTitle(), b.Copies.GetTotal(), b.Copies.GetLent()); err != nil {
		return err
	}
	return resource.CheckName("library", b.GetLibrary(), "libraries/{library}")
}

// checkBook checks the fields that both versions share.
func checkBook(title string, copies, lent int32) error {
	switch {
	case title == "":
		return listing.Invalid("title", "is missing")
	case copies < 0:
		return listing.Invalid("copies", "must not be negative")
	case lent < 0 || lent > copies:
		return listing.Invalid("lent", "must be 0 to the number of copies, %d", copies)
	}
	return nil
}

var errNoneLeft = connect.NewError(connect.CodeFailedPrecondition, errors.New("all copies are lent"))

func (s *serviceV1) LendBook(ctx context.Context, req *connect.Request[v1.LendBookRequest]) (*connect.Response[v1.Book], error) {
	return apiversion.Respond(s.books.Change(ctx, req.Msg, func(b *v1.Book) error {
		if b.Copies.Lent >= b.Copies.Total {
			return errNoneLeft
		}
		b.Copies.Lent++
		return nil
	}))
}
