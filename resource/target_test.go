package resource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

// names returns the ids of all records of a kind, each with the library that it refers to.
func (s *shelf) names(t testing.TB, kind string) string {
	t.Helper()
	var out []string
	for _, rec := range s.store.All(t, kind) {
		name, _ := rec.Key.Name()
		name = name[strings.Index(name, "/")+1:]
		if of, ok := rec.Doc.Lookup("library").StringValueOK(); ok {
			name += ":" + of
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// lent makes a shelf whose books refer to libraries, with a book in each of some.
func lent(t testing.TB, d TargetDelete, books ...string) *shelf {
	t.Helper()
	s := newShelf(t, func(c *Config[*libraryv1.Book]) { c.Check, c.Sparse = nil, []string{"library"} })
	s.books.Refer(Target{Field: "library", Table: s.libraries, TargetDelete: d})
	for _, l := range []string{"a", "b"} {
		if _, err := s.libraries.Insert(t.Context(), &libraryv1.Library{Name: "libraries/" + l}); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range books {
		id, of, _ := strings.Cut(b, ":")
		if err := s.lend(t.Context(), id, of); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *shelf) lend(ctx context.Context, id, of string) error {
	_, err := s.books.Insert(ctx, &libraryv1.Book{Name: "books/" + id, Title: "t", Library: of, Copies: &libraryv1.Copies{Total: 1}})
	return err
}

func (s *shelf) drop(ctx context.Context, library string) error {
	return s.libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: library})
}

// TestTargetDelete: what a delete does to the books of a library, by the index and without, in one
// write, and to nothing else.
func TestTargetDelete(t *testing.T) {
	t.Parallel()
	for d, want := range map[TargetDelete][3]string{
		Block:   {"a b", "1:libraries/a 2:libraries/a 3:libraries/b", "1/copies 2/copies 3/copies"},
		Cascade: {"b", "3:libraries/b", "3/copies"},
		Unset:   {"b", "1 2 3:libraries/b", "1/copies 2/copies 3/copies"},
	} {
		for _, index := range []bool{false, true} {
			t.Run(fmt.Sprint(d, index), func(t *testing.T) {
				t.Parallel()
				s := lent(t, d, "1:libraries/a", "2:libraries/a", "3:libraries/b")
				if index {
					s.store.BuildIndex(t, "books", "library")
				}
				before, err := s.books.Find(t.Context(), "books/1")
				if err != nil {
					t.Fatal(err)
				}
				scans, writes := s.store.Reads("books"), len(s.store.Writes())
				err = s.drop(t.Context(), "libraries/a")
				if index && s.store.Reads("books by library") == 0 || index && d != Unset && s.store.Reads("books") != scans {
					t.Error("the index is not used alone")
				}
				if d == Block {
					reason, meta := refusal.Of(err)
					if reason != refusal.StillReferenced || meta[refusal.MetaReferrers] != "2" || connect.CodeOf(err) != connect.CodeFailedPrecondition {
						t.Errorf("refused with %q, %v, %v", reason, meta, err)
					}
					if err == nil || !strings.Contains(err.Error(), "2 books by library") || strings.Contains(err.Error(), "books/1") {
						t.Errorf("refused: %v", err)
					}
				} else if n := len(s.store.Writes()) - writes; err != nil || n != 1 {
					t.Fatalf("%d writes, %v", n, err)
				}
				if got := [3]string{s.names(t, "libraries"), s.names(t, "books"), s.names(t, "copies")}; got != want {
					t.Errorf("left are %q, want %q", got, want)
				}
				if d == Unset {
					if b, err := s.books.Find(t.Context(), "books/1"); err != nil || b.GetRevision() != before.GetRevision()+1 || b.GetCopies().GetTotal() != 1 {
						t.Errorf("the book is %v, %v", b, err)
					}
				}
				if d != Block {
					return
				}
				for _, b := range []string{"books/1", "books/2"} {
					if err := s.books.Delete(t.Context(), &libraryv1.DeleteRequest{Name: b}); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.drop(t.Context(), "libraries/a"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestTargetIsTouched: a new reference changes the revision of what it names, one that stays and one
// that goes do not; a name of nothing is refused.
func TestTargetIsTouched(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := lent(t, Block)
	for _, step := range []struct {
		what string
		do   func() error
		a, b int64 // by how much the revisions grow
	}{
		{"create", func() error { return s.lend(ctx, "1", "libraries/a") }, 1, 0},
		{"stay", func() error {
			_, err := s.books.Change(ctx, &libraryv1.LendBookRequest{Name: "books/1"}, func(b *libraryv1.Book) error { b.Copies.Lent++; return nil })
			return err
		}, 0, 0},
		{"move", func() error {
			_, err := s.books.Change(ctx, &libraryv1.LendBookRequest{Name: "books/1"}, func(b *libraryv1.Book) error { b.Library = "libraries/b"; return nil })
			return err
		}, 0, 1},
		{"delete", func() error { return s.books.Delete(ctx, &libraryv1.DeleteRequest{Name: "books/1"}) }, 0, 0},
		{"none", func() error { return s.lend(ctx, "2", "") }, 0, 0},
	} {
		a, b := s.revision(t, "libraries/a"), s.revision(t, "libraries/b")
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if a, b = s.revision(t, "libraries/a")-a, s.revision(t, "libraries/b")-b; a != step.a || b != step.b {
			t.Errorf("%s: the revisions grow by %d and %d", step.what, a, b)
		}
	}
	want(t, s.lend(ctx, "3", "libraries/none"), connect.CodeInvalidArgument, "library: there is no libraries/none")
	want(t, s.lend(ctx, "3", "shelves/a"), connect.CodeInvalidArgument, `library: "shelves/a" is not libraries/{library}`)
	// What was there before the declaration stays as it is until it is changed.
	s.store.Put(t, "books", bson.D{{Key: "_id", Value: "books/9"}, {Key: "name", Value: "books/9"}, {Key: "library", Value: "libraries/none"}, {Key: "revision", Value: int64(1)}})
	change := func(to string) error {
		_, err := s.books.Change(ctx, &libraryv1.LendBookRequest{Name: "books/9"}, func(b *libraryv1.Book) error { b.Library = to; return nil })
		return err
	}
	if err := change("libraries/none"); err != nil {
		t.Error(err)
	}
	want(t, change("libraries/gone"), connect.CodeInvalidArgument, "library: there is no libraries/gone")
}

func (s *shelf) revision(t testing.TB, name string) int64 {
	t.Helper()
	l, err := s.libraries.Find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return l.GetRevision()
}

// TestTargetMeanwhile: what another client writes between the reads of a delete or a create and its
// write is not missed.
func TestTargetMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		d         TargetDelete
		do        func(ctx context.Context, s *shelf) error
		meanwhile func(ctx context.Context, s *shelf) error
		want      string // of the books
		code      connect.Code
	}{
		"block a new one": {Block, dropA, func(ctx context.Context, s *shelf) error { return s.lend(ctx, "2", "libraries/a") }, "1:libraries/b 2:libraries/a", connect.CodeFailedPrecondition},
		"block a moved":   {Block, dropA, func(ctx context.Context, s *shelf) error { return s.move(ctx, "libraries/a") }, "1:libraries/a", connect.CodeFailedPrecondition},
		"delete a new":    {Cascade, dropA, func(ctx context.Context, s *shelf) error { return s.lend(ctx, "2", "libraries/a") }, "1:libraries/b", 0},
		"clear a new":     {Unset, dropA, func(ctx context.Context, s *shelf) error { return s.lend(ctx, "2", "libraries/a") }, "1:libraries/b 2", 0},
		"keep a moved":    {Cascade, dropB, func(ctx context.Context, s *shelf) error { return s.move(ctx, "libraries/a") }, "1:libraries/a", 0},
		"leave a moved":   {Unset, dropB, func(ctx context.Context, s *shelf) error { return s.move(ctx, "libraries/a") }, "1:libraries/a", 0},
		"one that goes": {Cascade, dropB, func(ctx context.Context, s *shelf) error {
			return s.books.Delete(ctx, &libraryv1.DeleteRequest{Name: "books/1"})
		}, "", 0},
		"name one that goes": {Block, func(ctx context.Context, s *shelf) error { return s.lend(ctx, "2", "libraries/a") },
			func(ctx context.Context, s *shelf) error { return s.drop(ctx, "libraries/a") }, "1:libraries/b", connect.CodeInvalidArgument},
		"move to one that goes": {Block, func(ctx context.Context, s *shelf) error { return s.move(ctx, "libraries/a") },
			func(ctx context.Context, s *shelf) error { return s.drop(ctx, "libraries/a") }, "1:libraries/b", connect.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, done := lent(t, tc.d, "1:libraries/b"), false
			s.store.BeforeWrite(func([]record.Mutation) error {
				if done {
					return nil
				}
				done = true
				return tc.meanwhile(t.Context(), s)
			})
			err := tc.do(t.Context(), s)
			if code := connect.CodeOf(err); !done || (err != nil || tc.code != 0) && code != tc.code {
				t.Errorf("%v, %v", done, err)
			}
			if got := s.names(t, "books"); got != tc.want {
				t.Errorf("the books are %q, want %q", got, tc.want)
			}
		})
	}
}

func dropA(ctx context.Context, s *shelf) error { return s.drop(ctx, "libraries/a") }
func dropB(ctx context.Context, s *shelf) error { return s.drop(ctx, "libraries/b") }

// move has book 1 refer to another library.
func (s *shelf) move(ctx context.Context, to string) error {
	_, err := s.books.Change(ctx, &libraryv1.LendBookRequest{Name: "books/1"}, func(b *libraryv1.Book) error { b.Library = to; return nil })
	return err
}

// TestTargetOfMany: books that many clients of one server put into one library at the same time are
// all there, each by its first write. A client that stops waiting is told so.
func TestTargetOfMany(t *testing.T) {
	t.Parallel()
	const writers = 40
	s := lent(t, Block)
	before, wrote := s.revision(t, "libraries/a"), len(s.store.Writes())
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			if err := s.lend(t.Context(), fmt.Sprint(i), "libraries/a"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := s.revision(t, "libraries/a") - before; n != writers {
		t.Errorf("the revision grows by %d", n)
	}
	if n := len(s.store.Writes()) - wrote; n != writers {
		t.Errorf("%d writes", n)
	}
	s.store.BeforeWrite(func([]record.Mutation) error {
		s.store.BeforeWrite(nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.lend(ctx, "late", "libraries/a"); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that stops waiting: %v", err)
		}
		return nil
	})
	if err := s.lend(t.Context(), "last", "libraries/a"); err != nil {
		t.Error(err)
	}
}

// TestTargetCycles: libraries that refer to each other and to themselves are deleted once each, with
// all that refers to them; what is deleted anyway blocks nothing.
func TestTargetCycles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := lent(t, Cascade, "1:libraries/a", "2:libraries/b")
	s.libraries.Refer(Target{Field: "city", Table: s.libraries, TargetDelete: Cascade})
	s.books.Refer(Target{Field: "title", Table: s.libraries, TargetDelete: Block})
	set := func(l, city string) {
		t.Helper()
		if _, err := s.libraries.Update(ctx, &libraryv1.UpdateLibraryRequest{Library: &libraryv1.Library{Name: l, City: city}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{"c", "d", "e"} {
		if _, err := s.libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/" + l}); err != nil {
			t.Fatal(err)
		}
	}
	set("libraries/a", "libraries/b")
	set("libraries/b", "libraries/c")
	set("libraries/c", "libraries/a")
	set("libraries/d", "libraries/d")
	if _, err := s.libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/f", City: "libraries/f"}); err != nil {
		t.Errorf("one that names itself: %v", err)
	}
	// It goes with library c, so that it does not hold a, although a is looked at first.
	if _, err := s.books.Insert(ctx, &libraryv1.Book{Name: "books/3", Title: "libraries/a", Library: "libraries/c"}); err != nil {
		t.Fatal(err)
	}
	if err := s.drop(ctx, "libraries/a"); err != nil {
		t.Fatal(err)
	}
	if err := s.drop(ctx, "libraries/d"); err != nil {
		t.Fatal(err)
	}
	if got := s.names(t, "libraries") + ", " + s.names(t, "books") + s.names(t, "copies"); got != "e f, " {
		t.Errorf("left are %q", got)
	}
	if _, err := s.books.Insert(ctx, &libraryv1.Book{Name: "books/4", Title: "libraries/f", Library: "libraries/e"}); err != nil {
		t.Fatal(err)
	}
	want(t, s.drop(ctx, "libraries/f"), connect.CodeFailedPrecondition, "1 books by title")
}

// TestTargetOfFamily: a resource that is deleted by what it refers to takes its parts and children
// with it, and changes its owner; a child that something refers to is found below its parent.
func TestTargetOfFamily(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFamily(t, false)
	places := New(f.store, Config[*libraryv1.Library]{Kind: "notes", Pattern: "places/{place}"})
	f.books.Refer(Target{Field: "title", Table: places, TargetDelete: Cascade})
	places.Refer(Target{Field: "city", Table: f.books, TargetDelete: Unset})
	const book = "libraries/a/books/b"
	for _, err := range []error{
		insert(ctx, f.libraries, &libraryv1.Library{Name: "libraries/a"}),
		insert(ctx, places, &libraryv1.Library{Name: "places/p"}),
		insert(ctx, f.books, &libraryv1.Book{Name: book, Title: "places/p", Copies: &libraryv1.Copies{Total: 1}}),
		insert(ctx, f.notes, &libraryv1.Library{Name: book + "/notes/n"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before := f.revision(t, "libraries/a")
	if err := insert(ctx, places, &libraryv1.Library{Name: "places/q", City: book}); err != nil {
		t.Fatal(err)
	}
	if now := f.revision(t, "libraries/a"); now == before {
		t.Error("a new reference to a child does not change its owner")
	}
	before = f.revision(t, "libraries/a")
	if err := places.Delete(ctx, &libraryv1.DeleteRequest{Name: "places/p"}); err != nil {
		t.Fatal(err)
	}
	if now := f.revision(t, "libraries/a"); now != before+1 {
		t.Errorf("the revision of the owner grows by %d", now-before)
	}
	if n := len(f.store.All(t, "books")) + len(f.store.All(t, "copies")); n != 0 {
		t.Errorf("%d records are left of the book", n)
	}
	q, err := places.Find(ctx, "places/q")
	if err != nil || q.GetCity() != "" || len(f.store.All(t, "notes")) != 1 {
		t.Errorf("the other place is %v, %v", q, err)
	}
	// The same from the parent of the child.
	if err := insert(ctx, f.books, &libraryv1.Book{Name: book, Title: "places/q"}); err != nil {
		t.Fatal(err)
	}
	if _, err := places.Update(ctx, &libraryv1.UpdateLibraryRequest{Library: &libraryv1.Library{Name: "places/q", City: book}}); err != nil {
		t.Fatal(err)
	}
	if err := f.libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/a"}); err != nil {
		t.Fatal(err)
	}
	if q, err := places.Find(ctx, "places/q"); err != nil || q.GetCity() != "" {
		t.Errorf("the other place is %v, %v", q, err)
	}
}

func insert[M proto.Message](ctx context.Context, t *Table[M], m M) error {
	_, err := t.Insert(ctx, m)
	return err
}

// TestTargetOfTooMany: a delete that would take more than one transaction is refused, and changes
// nothing.
func TestTargetOfTooMany(t *testing.T) {
	t.Parallel()
	for d, text := range map[TargetDelete]string{
		Block:   "more than 10000 books by library",
		Cascade: "more than 10000 records would be deleted or changed with it",
		Unset:   "more than 10000 records would be deleted or changed with it",
	} {
		s := lent(t, d)
		for i := range maxChildren + 2 {
			name := fmt.Sprintf("books/%05d", i)
			s.store.Put(t, "books", bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "library", Value: "libraries/a"}, {Key: "revision", Value: int64(1)}})
		}
		writes := len(s.store.Writes())
		err := s.drop(t.Context(), "libraries/a")
		want(t, err, connect.CodeFailedPrecondition, text)
		if _, meta := refusal.Of(err); d == Block && meta[refusal.MetaReferrers] != "10000+" {
			t.Errorf("%v", meta)
		}
		if n := len(s.store.Writes()) - writes; n != 0 {
			t.Errorf("%s: %d writes", d, n)
		}
	}
	s := lent(t, Cascade, "1:libraries/a")
	s.store.BeforeWrite(func([]record.Mutation) error { return record.ErrOversize })
	err := s.drop(t.Context(), "libraries/a")
	want(t, err, connect.CodeInvalidArgument, "3 records would be deleted or changed with it")
	if reason, _ := refusal.Of(err); reason != refusal.TooLarge {
		t.Errorf("refused with %q", reason)
	}
}

// TestTargetThatCheckKeeps: a field that the service does not let go is not cleared, and what it
// names stays.
func TestTargetThatCheckKeeps(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.books.Refer(Target{Field: "library", Table: s.libraries, TargetDelete: Unset})
	for _, err := range []error{
		insert(t.Context(), s.libraries, &libraryv1.Library{Name: "libraries/a"}),
		insert(t.Context(), s.books, &libraryv1.Book{Name: "books/1", Title: "t", Library: "libraries/a"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want(t, s.drop(t.Context(), "libraries/a"), connect.CodeFailedPrecondition, "library of books/1 cannot be without it", "cannot change")
	if got := s.names(t, "libraries") + s.names(t, "books"); got != "a1:libraries/a" {
		t.Errorf("left are %q", got)
	}
}

// TestTargetDamaged: a book that cannot be read may refer to the library, so that it is not deleted.
func TestTargetDamaged(t *testing.T) {
	t.Parallel()
	s := lent(t, Block)
	s.store.Put(t, "books", bson.D{{Key: "_id", Value: "books/1"}, {Key: "library", Value: int32(5)}, {Key: "revision", Value: int64(1)}})
	want(t, s.drop(t.Context(), "libraries/a"), connect.CodeDataLoss, "books/1")
}
