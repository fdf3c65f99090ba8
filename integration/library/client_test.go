package library_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev"
	v1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
)

// session is one run of the one client of v1: always the same requests. What it is told is
// compared between runs, but for what is drawn at random: revisions count from the first of
// their resource, an id that the service makes is <id>.
type session struct {
	ctx      context.Context
	api      libraryv1connect.LibraryServiceClient
	requests int
	told     []string
	first    map[string]int64 // revision, by name
	made     string           // the id that the service made
	served   map[string]int   // responses, by the version whose handlers answered
	midway   func(api libraryv1connect.LibraryServiceClient)
}

// How many requests a session sends, and how many of them are to be answered by an error, which
// has no header of the version.
const (
	requestsOfSession = 79
	refusedOfSession  = 24
)

// call sends a request, once, and notes what comes back.
func call[Req, Res any](s *session, send func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) *Res {
	s.requests++
	res, err := send(s.ctx, connect.NewRequest(req))
	if err != nil {
		coded := new(connect.Error)
		if !errors.As(err, &coded) {
			coded = connect.NewError(connect.CodeUnknown, err)
		}
		s.note(drawn.ReplaceAllString(fmt.Sprintf("%s: %s", coded.Code(), coded.Message()), "revision is <drawn>"))
		return new(Res)
	}
	s.served[res.Header().Get(dbcontroller.VersionHeader)]++
	s.note(s.text(any(res.Msg).(proto.Message)))
	return res.Msg
}

func (s *session) note(text string) {
	if s.made != "" {
		text = strings.ReplaceAll(text, s.made, "<id>")
	}
	s.told = append(s.told, fmt.Sprintf("%d: %s", s.requests, text))
}

var (
	spaces = regexp.MustCompile(`\s+`)
	token  = regexp.MustCompile(`next_page_token: ?"[^"]*"`)
	drawn  = regexp.MustCompile(`revision is \d+`)
)

// text is a message without what differs between runs by itself.
func (s *session) text(m proto.Message) string {
	m = proto.Clone(m)
	libraries, books := []*v1.Library{}, []*v1.Book{}
	switch m := m.(type) {
	case *v1.Library:
		libraries = append(libraries, m)
	case *v1.Book:
		books = append(books, m)
	case *v1.ListLibrariesResponse:
		libraries = m.GetLibraries()
	case *v1.ListBooksResponse:
		books = m.GetBooks()
	}
	for _, l := range libraries {
		l.Revision = s.revision(l.GetName(), l.GetRevision())
	}
	for _, b := range books {
		b.Revision = s.revision(b.GetName(), b.GetRevision())
	}
	out := spaces.ReplaceAllString(prototext.Format(m), " ")
	return token.ReplaceAllString(out, `next_page_token: "<more>"`)
}

// revision counts from 1, for the first one that the session has seen of a name.
func (s *session) revision(name string, now int64) int64 {
	if now == 0 || name == "" {
		return 0
	}
	if s.first[name] == 0 {
		s.first[name] = now
	}
	return now - s.first[name] + 1
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

// run makes two libraries and their books, works on them and removes them.
func (s *session) run() {
	a := s.api
	s.libraries()
	s.books()
	s.lists()
	s.midway(a)
	s.errors()
	// It leaves nothing behind.
	for i := range 6 {
		call(s, a.DeleteBook, &v1.DeleteRequest{Name: fmt.Sprintf("books/b%d", i)})
	}
	call(s, a.DeleteLibrary, &v1.DeleteRequest{Name: "libraries/north"})
	call(s, a.DeleteLibrary, &v1.DeleteRequest{Name: "libraries/south"})
	call(s, a.GetLibrary, &v1.GetRequest{Name: "libraries/north"})
	call(s, a.GetBook, &v1.GetRequest{Name: "books/b1"})
	call(s, a.ListBooks, &v1.ListRequest{Filter: `library == "libraries/north"`})
}

func (s *session) libraries() {
	a := s.api
	north := call(s, a.CreateLibrary, &v1.CreateLibraryRequest{LibraryId: "north", Library: &v1.Library{Title: "North", City: "Reykjavik"}})
	call(s, a.CreateLibrary, &v1.CreateLibraryRequest{LibraryId: "south", Library: &v1.Library{Title: "South", Revision: 7}})
	call(s, a.GetLibrary, &v1.GetRequest{Name: "libraries/north"})
	call(s, a.GetLibrary, &v1.GetRequest{Name: "libraries/north", ReadMask: mask("title")})
	call(s, a.CreateLibrary, &v1.CreateLibraryRequest{LibraryId: "north", Library: &v1.Library{Title: "Again"}})
	call(s, a.UpdateLibrary, &v1.UpdateLibraryRequest{Library: &v1.Library{Name: "libraries/north", City: "Akureyri"}})
	call(s, a.UpdateLibrary, &v1.UpdateLibraryRequest{Library: &v1.Library{Name: "libraries/north"}, UpdateMask: mask("city")})
	call(s, a.UpdateLibrary, &v1.UpdateLibraryRequest{Library: &v1.Library{Name: "libraries/north", Title: "late"}, ExpectedRevision: proto.Int64(north.GetRevision())})
	now := call(s, a.GetLibrary, &v1.GetRequest{Name: "libraries/north"})
	call(s, a.UpdateLibrary, &v1.UpdateLibraryRequest{Library: &v1.Library{Name: "libraries/north", City: "Akureyri"}, ExpectedRevision: proto.Int64(now.GetRevision())})
	call(s, a.ListLibraries, &v1.ListRequest{})
	call(s, a.ListLibraries, &v1.ListRequest{Filter: `city == "Akureyri"`, ReadMask: mask("name", "city")})
	call(s, a.ListLibraries, &v1.ListRequest{OrderBy: "title desc"})
	page := call(s, a.ListLibraries, &v1.ListRequest{PageSize: 2})
	call(s, a.ListLibraries, &v1.ListRequest{PageSize: 2, PageToken: page.GetNextPageToken()})
}

func (s *session) books() {
	a := s.api
	for i := range 6 {
		library := "libraries/" + []string{"north", "south"}[i%2]
		call(s, a.CreateBook, &v1.CreateBookRequest{BookId: fmt.Sprintf("b%d", i), Book: &v1.Book{Title: fmt.Sprintf("Book %d", 9-i), Library: library, Copies: &v1.Copies{Total: int32(i)}}})
	}
	made := call(s, func(ctx context.Context, req *connect.Request[v1.CreateBookRequest]) (*connect.Response[v1.Book], error) {
		res, err := a.CreateBook(ctx, req)
		if err == nil {
			s.made = strings.TrimPrefix(res.Msg.GetName(), "books/")
		}
		return res, err
	}, &v1.CreateBookRequest{Book: &v1.Book{Title: "Zebra", Library: "libraries/south"}})
	call(s, a.GetBook, &v1.GetRequest{Name: made.GetName()})
	call(s, a.DeleteBook, &v1.DeleteRequest{Name: made.GetName()}) // its place in lists is not known
	call(s, a.GetBook, &v1.GetRequest{Name: "books/b2"})
	call(s, a.GetBook, &v1.GetRequest{Name: "books/b2", ReadMask: mask("copies.total", "library")})
	for range 3 { // b2 has two copies
		call(s, a.LendBook, &v1.LendBookRequest{Name: "books/b2"})
	}
	call(s, a.UpdateBook, &v1.UpdateBookRequest{Book: &v1.Book{Name: "books/b2", Copies: &v1.Copies{Total: 5}}, UpdateMask: mask("copies.total")})
	call(s, a.LendBook, &v1.LendBookRequest{Name: "books/b2"})
	call(s, a.UpdateBook, &v1.UpdateBookRequest{Book: &v1.Book{Name: "books/b2", Library: "libraries/south"}, UpdateMask: mask("library")})
	call(s, a.UpdateBook, &v1.UpdateBookRequest{Book: &v1.Book{Name: "books/b3", Title: "Third", Copies: &v1.Copies{Total: 4, Lent: 1}}})
	call(s, a.UpdateBook, &v1.UpdateBookRequest{Book: &v1.Book{Name: "books/b4", Title: "Fourth", Library: "libraries/north"}, UpdateMask: mask("*")})
	call(s, a.GetBook, &v1.GetRequest{Name: "books/b2"})
	call(s, a.GetBook, &v1.GetRequest{Name: "books/b4"})
}

func (s *session) lists() {
	a := s.api
	ours := `library in ["libraries/north", "libraries/south"]`
	call(s, a.ListBooks, &v1.ListRequest{PageSize: 5})
	call(s, a.ListBooks, &v1.ListRequest{Filter: ours})
	call(s, a.ListBooks, &v1.ListRequest{Filter: ours, OrderBy: "title"})
	call(s, a.ListBooks, &v1.ListRequest{Filter: ours + ` && copies.total > 1`, ReadMask: mask("name", "copies")})
	call(s, a.ListBooks, &v1.ListRequest{Filter: `library == "libraries/south" && copies.lent == 3`})
	call(s, a.ListBooks, &v1.ListRequest{Filter: `title.startsWith("Book") && library == "libraries/north"`})
	for token, page := "", 0; page == 0 || token != ""; page++ {
		token = call(s, a.ListBooks, &v1.ListRequest{Filter: ours, OrderBy: "copies.total desc, title", PageSize: 2, PageToken: token, ReadMask: mask("title")}).GetNextPageToken()
	}
	for token, page := "", 0; page < 4; page++ {
		token = call(s, a.ListBooks, &v1.ListRequest{PageSize: 10, PageToken: token, ReadMask: mask("title")}).GetNextPageToken()
	}
}

func (s *session) errors() {
	a := s.api
	call(s, a.GetBook, &v1.GetRequest{Name: "books/none"})
	call(s, a.GetBook, &v1.GetRequest{Name: "library/x"})
	call(s, a.GetBook, &v1.GetRequest{Name: "books/b1", ReadMask: mask("author")})
	call(s, a.CreateBook, &v1.CreateBookRequest{BookId: "b9", Book: &v1.Book{Title: "Lost", Library: "libraries/none"}})
	call(s, a.CreateBook, &v1.CreateBookRequest{BookId: "b9", Book: &v1.Book{Title: "Wrong", Library: "branches/north"}})
	call(s, a.CreateBook, &v1.CreateBookRequest{BookId: "b/9", Book: &v1.Book{Title: "Slash", Library: "libraries/north"}})
	call(s, a.CreateBook, &v1.CreateBookRequest{BookId: "b9", Book: &v1.Book{Library: "libraries/north"}})
	call(s, a.CreateBook, &v1.CreateBookRequest{BookId: "b9"})
	call(s, a.UpdateBook, &v1.UpdateBookRequest{Book: &v1.Book{Name: "books/b1", Copies: &v1.Copies{Total: -1}}})
	call(s, a.UpdateBook, &v1.UpdateBookRequest{Book: &v1.Book{Name: "books/b1"}, UpdateMask: mask("shelf")})
	call(s, a.UpdateBook, &v1.UpdateBookRequest{Book: &v1.Book{Name: "books/none", Title: "x"}})
	call(s, a.ListBooks, &v1.ListRequest{Filter: `shelf == "A"`})
	call(s, a.ListBooks, &v1.ListRequest{OrderBy: "branch"})
	call(s, a.ListBooks, &v1.ListRequest{PageToken: "nonsense"})
	call(s, a.ListBooks, &v1.ListRequest{PageSize: -1})
	call(s, a.LendBook, &v1.LendBookRequest{Name: "books/none"})
	call(s, a.DeleteLibrary, &v1.DeleteRequest{Name: "libraries/north"})
	call(s, a.DeleteBook, &v1.DeleteRequest{Name: "books/none"})
	call(s, a.DeleteBook, &v1.DeleteRequest{Name: "books/b1", ExpectedRevision: proto.Int64(1)})
}
