package resource

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/integration/localmongo/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// shelf is a table of books whose copies are parts, and a table of libraries.
type shelf struct {
	store     *sampletest.Store
	libraries *Table[*libraryv1.Library]
	books     *Table[*libraryv1.Book]
}

func newShelf(t testing.TB, edit ...func(*Config[*libraryv1.Book])) *shelf {
	t.Helper()
	s := &shelf{store: sampletest.New(t, "libraries", "books", "copies")}
	s.libraries = New(s.store, Config[*libraryv1.Library]{Kind: "libraries", Pattern: "libraries/{library}", Sparse: []string{"city"}})
	cfg := Config[*libraryv1.Book]{
		Kind: "books", Pattern: "books/{book}", NewID: RandomID,
		Check: func(_ context.Context, b, before *libraryv1.Book) error {
			if b.GetTitle() == "" {
				return listing.Invalid("title", "is missing")
			}
			if before != nil && before.GetLibrary() != b.GetLibrary() {
				return listing.Invalid("library", "cannot change")
			}
			return nil
		},
		Parts: PartsOf("copies", "copies",
			func(b *libraryv1.Book) map[string]*libraryv1.Copies {
				if b.GetCopies() == nil {
					return nil
				}
				return map[string]*libraryv1.Copies{"copies": b.GetCopies()}
			},
			func(b *libraryv1.Book, parts map[string]*libraryv1.Copies) error {
				b.Copies = parts["copies"]
				return nil
			}),
	}
	for _, e := range edit {
		e(&cfg)
	}
	s.books = New(s.store, cfg)
	return s
}

func (s *shelf) add(t testing.TB, id string, total int32) *libraryv1.Book {
	t.Helper()
	b, err := s.books.Create(context.Background(), &libraryv1.CreateBookRequest{BookId: id, Book: &libraryv1.Book{Title: "Title " + id, Copies: &libraryv1.Copies{Total: total}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *shelf) doc(t testing.TB, kind, name string) bson.Raw {
	t.Helper()
	rec, err := s.store.Get(context.Background(), kind, name)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Doc
}

// own are the methods that no table serves.
type own struct {
	libraryv1connect.UnimplementedLibraryServiceHandler
	books *Table[*libraryv1.Book]
}

func (o own) LendBook(ctx context.Context, req *connect.Request[libraryv1.LendBookRequest]) (*connect.Response[libraryv1.Book], error) {
	return apiversion.Respond(o.books.Change(ctx, req.Msg, func(b *libraryv1.Book) error { b.Copies.Lent++; return nil }))
}

// serve serves the whole service by its tables.
func (s *shelf) serve(t testing.TB, except ...string) libraryv1connect.LibraryServiceClient {
	t.Helper()
	_, rest := libraryv1connect.NewLibraryServiceHandler(own{books: s.books})
	mux := http.NewServeMux()
	mux.Handle(NewHandler(Service{Descriptor: apiOf(), Tables: []Standard{s.libraries, s.books}, Own: rest, Except: except}))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return libraryv1connect.NewLibraryServiceClient(srv.Client(), srv.URL)
}

// want checks the code of an error, and what it says.
func want(t testing.TB, err error, code connect.Code, texts ...string) {
	t.Helper()
	sampletest.WantError(t, apiversion.CodeError(err), code, texts...)
}

// panics returns what f panics with.
func panics(t testing.TB, f func()) (text string) {
	t.Helper()
	defer func() { text, _ = recover().(string) }()
	f()
	t.Error("it does not panic")
	return ""
}

// declaring is a store that declares one kind.
type declaring struct {
	*sampletest.Store
	kind string
}

func (d declaring) Declares(kind string) bool { return kind == d.kind }

// TestUndeclaredKind: a server does not start with a table whose kind, or the kind of its parts,
// nothing declares.
func TestUndeclaredKind(t *testing.T) {
	t.Parallel()
	s := sampletest.New(t, "books", "copies")
	cfg := Config[*libraryv1.Book]{Kind: "books", Pattern: "books/{book}", Parts: PartsOf[*libraryv1.Book, *libraryv1.Copies]("copies", "copies", nil, nil)}
	for declared, missing := range map[string]string{"copies": "books", "books": "copies"} {
		want := "resource: table of books: kind " + missing + " is not declared: name it in a transformer, or in Kinds of the Version"
		if got := panics(t, func() { New(declaring{s, declared}, cfg) }); got != want {
			t.Errorf("panics with %q, want %q", got, want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	s := sampletest.New(t, "books")
	for want, edit := range map[string]func(*Config[*libraryv1.Book]){
		"no Kind":                                  func(c *Config[*libraryv1.Book]) { c.Kind = "" },
		`the Pattern "books" is not collections`:   func(c *Config[*libraryv1.Book]) { c.Pattern = "books" },
		`the Pattern "{a}/{b}" is not`:             func(c *Config[*libraryv1.Book]) { c.Pattern = "{a}/{b}" },
		"has no string field id to hold the name":  func(c *Config[*libraryv1.Book]) { c.NameField = "id" },
		"has no int64 field title to count":        func(c *Config[*libraryv1.Book]) { c.Revision.Field = "title" },
		"has no field isbn, which Sparse names":    func(c *Config[*libraryv1.Book]) { c.Sparse = []string{"isbn"} },
		"References: library.v1.Book has no field": func(c *Config[*libraryv1.Book]) { c.References = []listing.Reference{{Field: "home", Both: "homes"}} },
		"has no field copy, which Parts names":     func(c *Config[*libraryv1.Book]) { c.Parts.Field = "copy" },
	} {
		cfg := Config[*libraryv1.Book]{Kind: "books", Pattern: "books/{book}", Parts: PartsOf[*libraryv1.Book, *libraryv1.Copies]("copies", "copies", nil, nil)}
		edit(&cfg)
		if got := panics(t, func() { New(s, cfg) }); !strings.HasPrefix(got, "resource: table of ") || !strings.Contains(got, want) {
			t.Errorf("panics with %q, want %q", got, want)
		}
	}
}

// TestNobodyServes: a method that is written nowhere is found when the handler is made.
func TestNobodyServes(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	got := panics(t, func() { NewHandler(Service{Descriptor: apiOf(), Tables: []Standard{s.libraries, s.books}}) })
	if !strings.Contains(got, "library.v1.LibraryService.LendBook is no standard method of a table") {
		t.Errorf("panics with %q", got)
	}
	got = panics(t, func() { s.serve(t, "GetShelf") })
	if !strings.Contains(got, "has no method GetShelf, which Except names") {
		t.Errorf("panics with %q", got)
	}
}

// TestRequestWithoutRole: a request that cannot say what it is about is the program's error.
func TestRequestWithoutRole(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	ctx := context.Background()
	_, err := s.books.Get(ctx, &libraryv1.ListRequest{})
	want(t, err, connect.CodeInternal, "library.v1.ListRequest has no field for the name of a Book")
	_, err = s.books.Create(ctx, &libraryv1.CreateLibraryRequest{})
	want(t, err, connect.CodeInternal, "library.v1.CreateLibraryRequest has no field for a Book")
	parents := New(s.store, Config[*secretsv2.Secret]{Kind: "books", Pattern: "shelves/{shelf}/books/{secret}"})
	_, err = parents.Create(ctx, &secretsv2.UpdateSecretRequest{Secret: &secretsv2.Secret{}})
	want(t, err, connect.CodeInvalidArgument, "secret.name")
	if errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
