package library

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"dbcontroller.dev"
	"dbcontroller.dev/apiversion"
	v2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/gen/library/v2/libraryv2connect"
	"dbcontroller.dev/resource"
)

var apiV2 = v2.File_library_v2_library_proto.Services().ByName("LibraryService")

// serviceV2 adds v2's own methods to the standard methods of its two resources.
type serviceV2 struct {
	libraryv2connect.UnimplementedLibraryServiceHandler
	branches *resource.Table[*v2.Branch]
	books    *resource.Table[*v2.Book]
}

func mountV2(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
	s := &serviceV2{}
	s.branches = resource.New(data, resource.Config[*v2.Branch]{Kind: "branches", Pattern: "branches/{branch}"})
	s.books = resource.New(data, resource.Config[*v2.Book]{Kind: "books", Pattern: "books/{book}", NewID: resource.RandomID, Check: s.checkBook})
	s.books.Refer(resource.Target{Field: "branch", Table: s.branches, TargetDelete: resource.Block})
	_, own := libraryv2connect.NewLibraryServiceHandler(s, opts...)
	mux.Handle(resource.NewHandler(resource.Service{
		Descriptor: apiV2, Tables: []resource.Standard{s.branches, s.books}, Own: own, Options: opts,
	}))
}

func (s *serviceV2) checkBook(_ context.Context, b, _ *v2.Book) error {
	if err := checkBook(b.GetTitle(), b.GetCopies(), b.GetLent()); err != nil {
		return err
	}
	return resource.CheckName("branch", b.GetBranch(), "branches/{branch}")
}

func (s *serviceV2) LendBook(ctx context.Context, req *connect.Request[v2.LendBookRequest]) (*connect.Response[v2.Book], error) {
	return apiversion.Respond(s.books.Change(ctx, req.Msg, func(b *v2.Book) error {
		if b.Lent >= b.Copies {
			return errNoneLeft
		}
		b.Lent++
		return nil
	}))
}
