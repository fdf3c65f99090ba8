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

	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
)

// family is a table of libraries that own books, which own copies of their own.
type family struct {
	store     *sampletest.Store
	libraries *Table[*libraryv1.Library]
	books     *Table[*libraryv1.Book]
	notes     *Table[*libraryv1.Library] // below books; any message serves
}

func newFamily(t testing.TB, refuse bool) family {
	t.Helper()
	f := family{store: sampletest.New(t, "libraries", "books", "copies", "notes")}
	f.libraries = New(f.store, Config[*libraryv1.Library]{Kind: "libraries", Pattern: "libraries/{library}"})
	f.books = New(f.store, Config[*libraryv1.Book]{
		Kind: "books", Pattern: "libraries/{library}/books/{book}", Owner: Owner{Table: f.libraries, Refuse: refuse},
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
	})
	f.notes = New(f.store, Config[*libraryv1.Library]{Kind: "notes", Pattern: "libraries/{library}/books/{book}/notes/{note}", Owner: Owner{Table: f.books}})
	return f
}

func (f family) revision(t testing.TB, name string) int64 {
	t.Helper()
	l, err := f.libraries.Find(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return l.GetRevision()
}

// TestOwner: each change of a child, and of a child of a child, changes the revision of the parent,
// so that a client that expects the revision from before is refused.
func TestOwner(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFamily(t, false)
	l, err := f.libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/a", Title: "A"})
	if err != nil {
		t.Fatal(err)
	}
	const book, note = "libraries/a/books/b", "libraries/a/books/b/notes/n"
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"create a child", func() error {
			_, err := f.books.Insert(ctx, &libraryv1.Book{Name: book, Title: "B", Copies: &libraryv1.Copies{Total: 1}})
			return err
		}},
		{"change a child", func() error {
			_, err := f.books.Change(ctx, &libraryv1.LendBookRequest{Name: book}, func(b *libraryv1.Book) error { b.Copies.Lent++; return nil })
			return err
		}},
		{"create a child of a child", func() error {
			_, err := f.notes.Insert(ctx, &libraryv1.Library{Name: note})
			return err
		}},
		{"delete a child of a child", func() error { return f.notes.Delete(ctx, &libraryv1.DeleteRequest{Name: note}) }},
		{"delete a child", func() error { return f.books.Delete(ctx, &libraryv1.DeleteRequest{Name: book}) }},
	} {
		before := f.revision(t, l.GetName())
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if f.revision(t, l.GetName()) == before {
			t.Errorf("%s: the parent still has revision %d", step.what, before)
		}
		err := f.libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: l.GetName(), ExpectedRevision: proto.Int64(before)})
		want(t, err, connect.CodeAborted, l.GetName())
	}
	if got, err := f.libraries.Find(ctx, l.GetName()); err != nil || got.GetTitle() != "A" {
		t.Errorf("the parent is %v, %v", got, err)
	}
	_, err = f.books.Insert(ctx, &libraryv1.Book{Name: "libraries/none/books/b", Title: "B"})
	want(t, err, connect.CodeNotFound, "libraries/none/books/b: libraries/none: record not found")
	if n := len(f.store.All(t, "books")); n != 0 {
		t.Errorf("%d books without a parent", n)
	}
}

// TestOwnerDeletes: a deleted parent leaves no child, part or child of a child, also where a child
// is created while the parent is deleted. With Refuse it stays until its children are gone.
func TestOwnerDeletes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fill := func(f family) {
		t.Helper()
		for _, l := range []string{"libraries/a", "libraries/ab"} {
			if _, err := f.libraries.Insert(ctx, &libraryv1.Library{Name: l}); err != nil {
				t.Fatal(err)
			}
			if _, err := f.books.Insert(ctx, &libraryv1.Book{Name: l + "/books/b", Title: "B", Copies: &libraryv1.Copies{Total: 1}}); err != nil {
				t.Fatal(err)
			}
			if _, err := f.notes.Insert(ctx, &libraryv1.Library{Name: l + "/books/b/notes/n"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := newFamily(t, false)
	fill(f)
	late := false
	f.store.BeforeWrite(func(ms []record.Mutation) error {
		if late || ms[0].Doc != nil {
			return nil
		}
		late = true
		_, err := f.books.Insert(ctx, &libraryv1.Book{Name: "libraries/a/books/late", Title: "Late"})
		return err
	})
	if err := f.libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/a"}); err != nil || !late {
		t.Fatal(err, late)
	}
	for _, kind := range []string{"libraries", "books", "copies", "notes"} {
		for _, rec := range f.store.All(t, kind) {
			if name, _ := rec.Key.Name(); !strings.HasPrefix(name, "libraries/ab") {
				t.Errorf("%s %s is left", kind, name)
			}
		}
		if n := len(f.store.All(t, kind)); n != 1 {
			t.Errorf("%d %s of the other library are left", n, kind)
		}
	}
	f = newFamily(t, true)
	fill(f)
	err := f.libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/a"})
	want(t, err, connect.CodeFailedPrecondition, "libraries/a has books: delete them first")
	if err := f.books.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/a/books/b"}); err != nil {
		t.Fatal(err)
	}
	if err := f.libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/a"}); err != nil {
		t.Error(err)
	}
}

// TestOwnerOfOrphan: a child whose parent is gone, as from before there was an Owner, can be deleted.
func TestOwnerOfOrphan(t *testing.T) {
	t.Parallel()
	f := newFamily(t, false)
	const name = "libraries/gone/books/b"
	f.store.Put(t, "books", bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "title", Value: "t"}, {Key: "revision", Value: int64(5)}})
	if err := f.books.Delete(context.Background(), &libraryv1.DeleteRequest{Name: name}); err != nil || len(f.store.All(t, "books")) != 0 {
		t.Error(err)
	}
}

// TestOwnerOfMany: children that are created at the same time are all created.
func TestOwnerOfMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFamily(t, false)
	l, err := f.libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/a"})
	if err != nil {
		t.Fatal(err)
	}
	const writers = 8
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			if _, err := f.books.Insert(ctx, &libraryv1.Book{Name: fmt.Sprintf("libraries/a/books/%d", i), Title: "t"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(f.store.All(t, "books")); n != writers {
		t.Errorf("%d books", n)
	}
	if got := f.revision(t, "libraries/a"); got != l.GetRevision()+writers {
		t.Errorf("the revision grew by %d", got-l.GetRevision())
	}
}

func TestOwnerIsChecked(t *testing.T) {
	t.Parallel()
	f := newFamily(t, false)
	for _, pattern := range []string{"books/{book}", "shelves/{shelf}/books/{book}", "libraries/{library}", "libraries/{library}/books/{book}/notes/{note}"} {
		got := panics(t, func() {
			New(f.store, Config[*libraryv1.Book]{Kind: "books", Pattern: pattern, Owner: Owner{Table: f.libraries}})
		})
		if !strings.Contains(got, "is not one collection and one id below") {
			t.Errorf("%s panics with %q", pattern, got)
		}
	}
}

// TestOwnerOfWhatWasAList: v1 has the books in a list of their library. Its conditional update,
// which does not know of a book that a client of v2 has created meanwhile, must not delete it.
func TestOwnerOfWhatWasAList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFamily(t, false)
	l, err := lens.Parse("k.yaml", []byte(`
kinds: {from: libraries, to: libraries}
operations:
  - fanOut: {field: books, as: list, kind: books, key: "{_key}/books/{id}", id: title}
`))
	if err != nil {
		t.Fatal(err)
	}
	registry := transform.NewRegistry("library")
	if err := registry.Add("v1", "v2", l.Spec("libraries", "libraries", lens.Managed())); err != nil {
		t.Fatal(err)
	}
	show, err := registry.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := registry.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	v1, err := adapt.New(f.store, show, keep, adapt.Config{Leads: map[string]string{"libraries": "libraries"}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := f.libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/a", Title: "A"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := v1.Get(ctx, "libraries", "libraries/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.books.Insert(ctx, &libraryv1.Book{Name: "libraries/a/books/b", Title: "b"}); err != nil {
		t.Fatal(err)
	}
	update := record.Mutation{Kind: "libraries", Key: before.Key, Doc: before.Doc,
		Match: &record.Match{Path: "revision", Value: before.Doc.Lookup("revision")}}
	if err := v1.Write(ctx, []record.Mutation{update}); !errors.Is(err, record.ErrMismatch) {
		t.Errorf("an update that expects revision %d: %v", made.GetRevision(), err)
	}
	if _, err := f.books.Find(ctx, "libraries/a/books/b"); err != nil {
		t.Errorf("the book: %v", err)
	}
	now, err := v1.Get(ctx, "libraries", "libraries/a")
	if err != nil || !strings.Contains(now.Doc.String(), `"title": "b"`) {
		t.Errorf("v1 shows %v, %v: %v", now.Doc, err, adapt.Reason(err))
	}
}
