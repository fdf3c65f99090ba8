package resource

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
)

// TestStandardMethods: a service's clients reach its tables, and its own handler for what
// these do not serve.
func TestStandardMethods(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	api := s.serve(t, "DeleteLibrary")
	made, err := api.CreateBook(ctx, connect.NewRequest(&libraryv1.CreateBookRequest{BookId: "b", Book: &libraryv1.Book{Title: "t", Copies: &libraryv1.Copies{Total: 1}}}))
	if err != nil || made.Msg.GetName() != "books/b" {
		t.Fatal(made, err)
	}
	lent, err := api.LendBook(ctx, connect.NewRequest(&libraryv1.LendBookRequest{Name: "books/b"}))
	if err != nil || lent.Msg.GetCopies().GetLent() != 1 {
		t.Fatal(lent, err)
	}
	got, err := api.GetBook(ctx, connect.NewRequest(&libraryv1.GetRequest{Name: "books/b"}))
	if err != nil || !proto.Equal(got.Msg, lent.Msg) {
		t.Errorf("got %v, %v", got, err)
	}
	list, err := api.ListBooks(ctx, connect.NewRequest(&libraryv1.ListRequest{}))
	if err != nil || len(list.Msg.GetBooks()) != 1 || !proto.Equal(list.Msg.GetBooks()[0], lent.Msg) {
		t.Errorf("listed %v, %v", list, err)
	}
	up, err := api.UpdateBook(ctx, connect.NewRequest(&libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/b", Title: "u"}}))
	if err != nil || up.Msg.GetTitle() != "u" {
		t.Errorf("updated %v, %v", up, err)
	}
	if _, err := api.DeleteBook(ctx, connect.NewRequest(&libraryv1.DeleteRequest{Name: "books/b"})); err != nil {
		t.Error(err)
	}
	_, err = api.GetBook(ctx, connect.NewRequest(&libraryv1.GetRequest{Name: "books/b"}))
	want(t, err, connect.CodeNotFound, "books/b: record not found")
	_, err = api.DeleteLibrary(ctx, connect.NewRequest(&libraryv1.DeleteRequest{Name: "libraries/x"}))
	want(t, err, connect.CodeUnimplemented) // as own has it
	libraries, err := api.ListLibraries(ctx, connect.NewRequest(&libraryv1.ListRequest{}))
	if err != nil || len(libraries.Msg.GetLibraries()) != 0 {
		t.Errorf("listed %v, %v", libraries, err)
	}
}

// TestWatch: the initial state, its end, then each change once, and what no longer matches
// as deleted.
func TestWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newShelf(t)
	api := s.serve(t)
	s.add(t, "a", 1)
	stream, err := api.WatchBooks(ctx, connect.NewRequest(&libraryv1.WatchRequest{Filter: `copies.lent == 0`}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close() //nolint:errcheck // the context ends it
	expect := func(want string) {
		t.Helper()
		if !stream.Receive() {
			t.Fatalf("ended with %v, want %s", stream.Err(), want)
		}
		m := stream.Msg()
		if got := fmt.Sprint(m.GetEvent(), " ", m.GetName(), " ", m.GetBook().GetTitle()); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	expect("EVENT_PUT books/a Title a")
	expect("EVENT_CAUGHT_UP  ")
	s.add(t, "b", 2) // two records, one event
	expect("EVENT_PUT books/b Title b")
	if _, err := api.LendBook(ctx, connect.NewRequest(&libraryv1.LendBookRequest{Name: "books/a"})); err != nil {
		t.Fatal(err)
	}
	expect("EVENT_DELETE books/a ")
	if _, err := api.DeleteBook(ctx, connect.NewRequest(&libraryv1.DeleteRequest{Name: "books/a"})); err != nil {
		t.Fatal(err) // the client does not have it
	}
	if _, err := api.DeleteBook(ctx, connect.NewRequest(&libraryv1.DeleteRequest{Name: "books/b"})); err != nil {
		t.Fatal(err)
	}
	expect("EVENT_DELETE books/b ")
	bad, err := api.WatchBooks(ctx, connect.NewRequest(&libraryv1.WatchRequest{Filter: "nonsense =="}))
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close() //nolint:errcheck // it has ended
	if bad.Receive() {
		t.Error("a filter that makes no sense is watched")
	}
	want(t, bad.Err(), connect.CodeInvalidArgument, "filter")
}

// TestCompression: what is small is sent as it is, to clients that take gzip, too.
func TestCompression(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	small, large := s.add(t, "small", 1), &libraryv1.Book{Title: strings.Repeat("long ", 1000), Copies: &libraryv1.Copies{Total: 1}}
	if _, err := s.books.Create(t.Context(), &libraryv1.CreateBookRequest{BookId: "large", Book: large}); err != nil {
		t.Fatal(err)
	}
	_, h := NewHandler(Service{Descriptor: apiOf(), Tables: []Standard{s.libraries, s.books}, Own: http.NotFoundHandler()})
	for name, want := range map[string]string{small.GetName(): "", "books/large": "gzip"} {
		req := httptest.NewRequest(http.MethodPost, libraryv1connect.LibraryServiceGetBookProcedure, strings.NewReader(`{"name":"`+name+`"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept-Encoding", "gzip")
		res := httptest.NewRecorder()
		h.ServeHTTP(res, req)
		if got := res.Header().Get("Content-Encoding"); res.Code != http.StatusOK || got != want {
			t.Errorf("%s: status %d, encoding %q, want %q", name, res.Code, got, want)
		}
	}
}
