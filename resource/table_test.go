package resource

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/record"
)

func apiOf() protoreflect.ServiceDescriptor {
	return libraryv1.File_library_v1_library_proto.Services().ByName("LibraryService")
}

// TestIDs: an id is the client's or drawn; one that was drawn and is taken is drawn again.
func TestIDs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	drawn := []string{"one", "one", "two"}
	s := newShelf(t, func(c *Config[*libraryv1.Book]) {
		c.NewID = func() string { id := drawn[0]; drawn = drawn[1:]; return id }
	})
	create := func(id string) (string, error) {
		b, err := s.books.Create(ctx, &libraryv1.CreateBookRequest{BookId: id, Book: &libraryv1.Book{Title: "t"}})
		return b.GetName(), err
	}
	for i, want := range []string{"books/one", "books/two"} {
		if name, err := create(""); err != nil || name != want {
			t.Errorf("book %d is %s, %v", i, name, err)
		}
	}
	_, err := create("two")
	want(t, err, connect.CodeAlreadyExists, "books/two: record exists already")
	for id, text := range map[string]string{"a/b": "must not contain '/'", "-": "stands for all", strings.Repeat("x", 129): "at most 128"} {
		_, err := create(id)
		want(t, err, connect.CodeInvalidArgument, "book_id: ", text)
	}
	_, err = s.books.Create(ctx, &libraryv1.CreateBookRequest{BookId: "three", Book: &libraryv1.Book{Name: "books/four", Title: "t"}})
	want(t, err, connect.CodeInvalidArgument, `book.name: is "books/four", but the request makes "books/three"`)
	_, err = s.libraries.Create(ctx, &libraryv1.CreateLibraryRequest{Library: &libraryv1.Library{}})
	want(t, err, connect.CodeInvalidArgument, "library_id: is missing")
	_, err = s.libraries.Create(ctx, &libraryv1.CreateLibraryRequest{LibraryId: "x"})
	want(t, err, connect.CodeInvalidArgument, "library: is missing")
	if a, b := RandomID(), RandomID(); a == b || len(a) != 26 || a != strings.ToLower(a) {
		t.Errorf("drawn ids are %s and %s", a, b)
	}
}

// TestRevisions: name and revision are the service's, a change compares what it has read,
// and one that expects another revision changes nothing.
func TestRevisions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	b := s.add(t, "b", 1)
	if b.GetRevision() == 0 || s.doc(t, "books", "books/b").Lookup("revision").AsInt64() != b.GetRevision() {
		t.Errorf("made with revision %d", b.GetRevision())
	}
	now, err := s.books.Update(ctx, &libraryv1.UpdateBookRequest{
		Book: &libraryv1.Book{Name: "books/b", Title: "new", Revision: 9}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title", "revision", "name"}}, ExpectedRevision: proto.Int64(b.GetRevision()),
	})
	if err != nil || now.GetRevision() != b.GetRevision()+1 || now.GetName() != "books/b" || now.GetTitle() != "new" {
		t.Errorf("updated to %v, %v", now, err)
	}
	_, err = s.books.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/b", Title: "late"}, ExpectedRevision: proto.Int64(b.GetRevision())})
	want(t, err, connect.CodeAborted, "books/b: its revision is ", apiversion.ErrStale.Error())
	err = s.books.Delete(ctx, &libraryv1.DeleteRequest{Name: "books/b", ExpectedRevision: proto.Int64(b.GetRevision())})
	want(t, err, connect.CodeAborted)
	// Others change it between the reading and the writing: the change is made on top of theirs.
	raced := false
	s.store.BeforeWrite(func([]record.Mutation) error {
		if raced {
			return nil
		}
		raced = true
		s.store.Put(t, "books", bson.D{{Key: "_id", Value: "books/b"}, {Key: "name", Value: "books/b"}, {Key: "title", Value: "theirs"}, {Key: "revision", Value: int64(5)}})
		return nil
	})
	now, err = s.books.Change(ctx, &libraryv1.LendBookRequest{Name: "books/b"}, func(b *libraryv1.Book) error { b.Copies.Lent++; return nil })
	if err != nil || now.GetRevision() != 6 || now.GetTitle() != "theirs" || now.GetCopies().GetLent() != 1 {
		t.Errorf("changed to %v, %v", now, err)
	}
	err = s.books.Delete(ctx, &libraryv1.DeleteRequest{Name: "books/b", ExpectedRevision: proto.Int64(6)})
	if err != nil || len(s.store.All(t, "copies")) != 0 {
		t.Errorf("deleted with %v, left %v", err, s.store.All(t, "copies"))
	}
	want(t, s.books.Delete(ctx, &libraryv1.DeleteRequest{Name: "books/b"}), connect.CodeNotFound, "books/b: record not found")
}

// TestUnknownFields: what a newer program has stored stays, in the record and its parts, at
// every level, whatever is changed.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	s.store.Put(t, "books", bson.D{{Key: "_id", Value: "books/b"}, {Key: "name", Value: "books/b"}, {Key: "newer", Value: "x"}, {Key: "title", Value: "t"}, {Key: "revision", Value: int64(5)}})
	s.store.Put(t, "copies", bson.D{{Key: "_id", Value: "books/b/copies"}, {Key: "total", Value: int32(2)}, {Key: "newer", Value: "y"}})
	b, err := s.books.Change(ctx, &libraryv1.LendBookRequest{Name: "books/b"}, func(b *libraryv1.Book) error { b.Copies.Lent = 1; return nil })
	if err != nil || b.GetCopies().GetTotal() != 2 {
		t.Fatal(b, err)
	}
	if got := s.doc(t, "books", "books/b"); got.Lookup("newer").StringValue() != "x" || got.Lookup("revision").AsInt64() != 6 {
		t.Errorf("the record is %v", got)
	}
	if got := s.doc(t, "copies", "books/b/copies"); got.Lookup("newer").StringValue() != "y" || got.Lookup("lent").Int32() != 1 {
		t.Errorf("its part is %v", got)
	}
}

// TestParts: parts are records of their own, written only when they change, and read only
// when a request asks for them.
func TestParts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	s.add(t, "b", 1)
	if _, err := s.doc(t, "books", "books/b").LookupErr("copies"); err == nil {
		t.Error("the record has its parts within")
	}
	before := len(s.store.Writes())
	if _, err := s.books.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/b", Title: "new"}}); err != nil {
		t.Fatal(err)
	}
	if last := s.store.Writes()[before]; len(last) != 1 {
		t.Errorf("a new title writes %v", last)
	}
	_, err := s.books.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/b"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"copies"}}})
	if err != nil || len(s.store.All(t, "copies")) != 0 {
		t.Errorf("parts that were removed: %v, %v", s.store.All(t, "copies"), err)
	}
	reads := s.store.Reads("copies")
	page, err := s.books.List(ctx, &libraryv1.ListRequest{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}}, Filter: `title == "new"`})
	if err != nil || len(page.Items) != 1 || s.store.Reads("copies") != reads {
		t.Errorf("listed %v, %v, with %d reads of parts", page.Items, err, s.store.Reads("copies")-reads)
	}
}

// TestCheck: the check sees what is there, and what it refuses is not written.
func TestCheck(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	s.add(t, "b", 1)
	before := len(s.store.Writes())
	_, err := s.books.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/b", Library: "libraries/x"}})
	want(t, err, connect.CodeInvalidArgument, "library: cannot change")
	_, err = s.books.Create(ctx, &libraryv1.CreateBookRequest{BookId: "c", Book: &libraryv1.Book{}})
	want(t, err, connect.CodeInvalidArgument, "title: is missing")
	if n := len(s.store.Writes()); n != before {
		t.Errorf("%d writes", n-before)
	}
}

// TestSparse: a field that says nothing is not stored, neither new nor emptied.
func TestSparse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	if _, err := s.libraries.Create(ctx, &libraryv1.CreateLibraryRequest{LibraryId: "l", Library: &libraryv1.Library{City: "x"}}); err != nil {
		t.Fatal(err)
	}
	if got := s.doc(t, "libraries", "libraries/l"); got.Lookup("city").StringValue() != "x" || got.Lookup("title").StringValue() != "" {
		t.Errorf("stored %v", got)
	}
	if _, err := s.libraries.Update(ctx, &libraryv1.UpdateLibraryRequest{Library: &libraryv1.Library{Name: "libraries/l"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"city"}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.doc(t, "libraries", "libraries/l").LookupErr("city"); err == nil {
		t.Errorf("an empty city is stored: %v", got)
	}
}

// TestSparseNumbers: a number that says nothing is one of any type.
func TestSparseNumbers(t *testing.T) {
	t.Parallel()
	table := &Table[*libraryv1.Library]{message: (*libraryv1.Library)(nil).ProtoReflect().Descriptor(), cfg: Config[*libraryv1.Library]{Sparse: []string{"double", "long", "int", "text", "other"}}}
	doc, err := bson.Marshal(bson.D{
		{Key: "double", Value: 0.0}, {Key: "long", Value: int64(0)}, {Key: "int", Value: int32(0)}, {Key: "text", Value: ""},
		{Key: "other", Value: 0.5}, {Key: "kept", Value: 0.0},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := table.formed(doc, false)
	if err != nil {
		t.Fatal(err)
	}
	elements, err := got.Elements()
	if err != nil || len(elements) != 2 || elements[0].Key() != "other" || elements[1].Key() != "kept" {
		t.Errorf("stored %s, %v", got, err)
	}
}

// TestMalformed: what cannot be read is a record for a person to look at.
func TestMalformed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	s.store.Put(t, "books", bson.D{{Key: "_id", Value: "books/odd"}, {Key: "title", Value: 1}, {Key: "revision", Value: int64(1)}})
	s.store.Put(t, "books", bson.D{{Key: "_id", Value: "books/old"}, {Key: "title", Value: "t"}})
	_, err := s.books.Get(ctx, &libraryv1.GetRequest{Name: "books/odd"})
	want(t, err, connect.CodeDataLoss, "books/odd", "title")
	_, err = s.books.Change(ctx, &libraryv1.GetRequest{Name: "books/old"}, func(*libraryv1.Book) error { return nil })
	want(t, err, connect.CodeDataLoss, "books/old", "no revision")
}

// TestParents: names, and parents whose first id stands for all, are those of the pattern.
func TestParents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := sampletest.New(t, "secrets")
	table := New(s, Config[*secretsv1.Secret]{
		Kind: "secrets", Pattern: "projects/{project}/zones/{zone}/secrets/{secret}",
		Within: func(proto.Message) Within { return Within{Prefix: "projects/p"} },
	})
	for _, parent := range []string{"projects/o/zones/a", "projects/p/zones/a", "projects/p-/zones/b", "projects/q/zones/a", "projects/p/zones/b"} {
		if _, err := table.Create(ctx, &secretsv1.CreateSecretRequest{Parent: parent, SecretId: "s", Secret: &secretsv1.Secret{}}); err != nil {
			t.Fatal(err)
		}
	}
	for parent, names := range map[string]string{
		"":                   "projects/p-/zones/b/secrets/s projects/p/zones/a/secrets/s projects/p/zones/b/secrets/s",
		"projects/-/zones/b": "projects/p-/zones/b/secrets/s projects/p/zones/b/secrets/s",
		"projects/p/zones/a": "projects/p/zones/a/secrets/s",
		"projects/q/zones/a": "",
	} {
		var got []string
		token := ""
		for first := true; first || token != ""; first = false {
			page, err := table.List(ctx, &secretsv1.ListSecretsRequest{Parent: parent, PageSize: 1, PageToken: token})
			if err != nil {
				t.Fatal(parent, err)
			}
			for _, m := range page.Items {
				got = append(got, m.GetName())
			}
			token = page.NextPageToken
		}
		if strings.Join(got, " ") != names {
			t.Errorf("%q holds %v, want %s", parent, got, names)
		}
	}
	_, err := table.Create(ctx, &secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: "s", Secret: &secretsv1.Secret{}})
	want(t, err, connect.CodeInvalidArgument, `parent: "projects/p" is not projects/{project}/zones/{zone}`)
	_, err = table.List(ctx, &secretsv1.ListSecretsRequest{Parent: "projects/p/zones/-"})
	want(t, err, connect.CodeInvalidArgument, "parent")
	n := 0
	if err := table.Each(ctx, "projects/-/zones/a", func(string, *secretsv1.Secret) error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("each of zone a: %d, %v", n, err)
	}
}
