package library_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	v1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
)

// seeded is how many books are there before the client comes.
const seeded = 25

// seed makes a library with books, and gives one of these what no version of the program
// knows, under the same name in both of its records.
func (s *system) seed() {
	s.t.Helper()
	api := libraryv1connect.NewLibraryServiceClient(s.http, s.servers[0])
	if _, err := api.CreateLibrary(s.ctx, connect.NewRequest(&v1.CreateLibraryRequest{LibraryId: "main", Library: &v1.Library{Title: "Main"}})); err != nil {
		s.t.Fatal(err)
	}
	for i := range seeded {
		_, err := api.CreateBook(s.ctx, connect.NewRequest(&v1.CreateBookRequest{
			BookId: fmt.Sprintf("s%02d", i), Book: &v1.Book{Title: fmt.Sprintf("Seed %d", i), Library: "libraries/main", Copies: &v1.Copies{Total: 3}},
		}))
		if err != nil {
			s.t.Fatal(err)
		}
	}
	for _, rec := range []struct{ kind, id, note string }{{"books", "books/s01", "of the book"}, {"copies", "books/s01/copies", "of the copies"}} {
		changed := int64(0)
		for _, c := range s.collections("v1", rec.kind) {
			res, err := s.db["v1"].Collection(c).UpdateByID(s.ctx, rec.id, bson.D{{Key: "$set", Value: bson.D{{Key: "note", Value: rec.note}}}})
			if err != nil {
				s.t.Fatal(err)
			}
			changed += res.ModifiedCount
		}
		if changed != 1 {
			s.t.Fatalf("%s: changed %d records", rec.id, changed)
		}
	}
}

// collections are those that a kind has had.
func (s *system) collections(version, kind string) (names []string) {
	all, err := s.db[version].ListCollectionNames(s.ctx, bson.D{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasPrefix(name, kind) {
			names = append(names, name)
		}
	}
	return names
}

// stored is a record as the database has it.
func (s *system) stored(version, kind, id string) (bson.Raw, error) {
	for _, c := range s.collections(version, kind) {
		if doc, err := s.db[version].Collection(c).FindOne(s.ctx, bson.D{{Key: "_id", Value: id}}).Raw(); err == nil {
			return doc, nil
		}
	}
	return nil, fmt.Errorf("no %s %s", version, id)
}

// unknown finds what no version of the program knows: each record's own.
func (s *system) unknown(lent int32) error {
	now, err := s.stored("v2", "books", "books/s01")
	if err != nil {
		return err
	}
	if rest, ok := now.Lookup("_rest").ArrayOK(); !ok || now.Lookup("lent").Int32() != lent {
		return fmt.Errorf("v2 has %v", now)
	} else if values, err := rest.Values(); err != nil || len(values) != 2 {
		return fmt.Errorf("v2 keeps %v, %w", rest, err)
	}
	for kind, note := range map[string]string{"books": "of the book", "copies": "of the copies"} {
		id := "books/s01"
		if kind == "copies" {
			id += "/copies"
		}
		doc, err := s.stored("v1", kind, id)
		if err != nil {
			return err
		}
		if got, _ := doc.Lookup("note").StringValueOK(); got != note || kind == "copies" && doc.Lookup("lent").Int32() != lent {
			return fmt.Errorf("%s are %v", kind, doc)
		}
	}
	return nil
}

// watch is a stream that v1's client keeps open all the time.
type watch struct {
	s      *system
	stream *connect.ServerStreamForClient[v1.WatchBooksResponse]
	has    map[string]bool
}

// watch opens the stream and reads the initial state.
func (s *system) watch() *watch {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	stream, err := libraryv1connect.NewLibraryServiceClient(s.http, s.servers[0]).WatchBooks(ctx, connect.NewRequest(&v1.WatchRequest{Filter: `library == "libraries/main"`}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cancel()
		if err := stream.Close(); err != nil && connect.CodeOf(err) != connect.CodeCanceled && !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
	})
	w := &watch{s, stream, map[string]bool{}}
	for w.receive().GetEvent() != v1.WatchBooksResponse_EVENT_CAUGHT_UP {
	}
	if len(w.has) != seeded {
		s.t.Errorf("the initial state has %d books, want %d", len(w.has), seeded)
	}
	return w
}

func (w *watch) receive() *v1.WatchBooksResponse {
	w.s.t.Helper()
	if !w.stream.Receive() {
		w.s.t.Fatalf("the watch has ended: %v", w.stream.Err())
	}
	m := w.stream.Msg()
	switch m.GetEvent() {
	case v1.WatchBooksResponse_EVENT_PUT:
		w.has[m.GetName()] = true
	case v1.WatchBooksResponse_EVENT_DELETE:
		w.s.t.Errorf("%s was reported as deleted", m.GetName())
	}
	return m
}

// expect waits for a book in a state.
func (w *watch) expect(name string, is func(*v1.Book) bool) {
	w.s.t.Helper()
	for {
		m := w.receive()
		if m.GetEvent() == v1.WatchBooksResponse_EVENT_CAUGHT_UP {
			w.s.t.Error("the initial state was complete twice")
		}
		if m.GetName() == name && is(m.GetBook()) {
			return
		}
	}
}
