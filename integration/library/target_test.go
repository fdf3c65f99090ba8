package library_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev"
	v1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
	v2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/gen/library/v2/libraryv2connect"
	"dbcontroller.dev/refusal"
)

// targets has clients of both versions delete libraries while others put books into them.
type targets struct {
	*system
	old              libraryv1connect.LibraryServiceClient
	now              libraryv2connect.LibraryServiceClient
	deleted, refused atomic.Int64
}

// late reports whether a call may fail so: its library is gone, others changed it all the time, or
// v2 cannot be written yet.
func late(err error) bool {
	reason, _ := refusal.Of(err)
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeAborted, connect.CodeNotFound:
		return true
	}
	return reason == refusal.VersionNotActive || reason == refusal.VersionNotReady
}

// round deletes a library in the words of one version, while books come in those of both. Which
// version has served it is returned.
func (w *targets) round(n int) (version string, err error) {
	id := fmt.Sprintf("r%04d", n)
	made, err := w.old.CreateLibrary(w.ctx, connect.NewRequest(&v1.CreateLibraryRequest{LibraryId: id, Library: &v1.Library{Title: id}}))
	if err != nil {
		return "", fmt.Errorf("create a library: %w", err)
	}
	var g errgroup.Group
	var put atomic.Int64
	for i := range 2 {
		g.Go(func() error {
			_, err := w.old.CreateBook(w.ctx, connect.NewRequest(&v1.CreateBookRequest{BookId: fmt.Sprintf("%s-%d", id, i), Book: &v1.Book{Title: "t", Library: "libraries/" + id}}))
			if err == nil {
				put.Add(1)
			} else if !late(err) {
				return fmt.Errorf("create a book: %w", err)
			}
			_, err = w.now.CreateBook(w.ctx, connect.NewRequest(&v2.CreateBookRequest{BookId: fmt.Sprintf("%s-%d-now", id, i), Book: &v2.Book{Title: "t", Branch: "branches/" + id}}))
			if err == nil {
				put.Add(1)
			} else if !late(err) {
				return fmt.Errorf("create a book by v2: %w", err)
			}
			return nil
		})
	}
	gone := false
	g.Go(func() error {
		_, err := w.old.DeleteLibrary(w.ctx, connect.NewRequest(&v1.DeleteRequest{Name: "libraries/" + id}))
		if n%2 == 1 {
			_, byNow := w.now.DeleteBranch(w.ctx, connect.NewRequest(&v2.DeleteRequest{Name: "branches/" + id}))
			if byNow == nil {
				err = nil
			}
		}
		switch reason, meta := refusal.Of(err); {
		case err == nil:
			gone = true
			w.deleted.Add(1)
		case reason == refusal.StillReferenced && meta[refusal.MetaReferrers] != "":
			w.refused.Add(1)
		case !late(err):
			return fmt.Errorf("delete: %w", err)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	books, err := w.old.ListBooks(w.ctx, connect.NewRequest(&v1.ListRequest{Filter: fmt.Sprintf("library == %q", "libraries/"+id)}))
	switch {
	case err != nil:
		return "", fmt.Errorf("list: %w", err)
	case gone && len(books.Msg.GetBooks()) > 0:
		return "", fmt.Errorf("%s is deleted, and has %v", id, books.Msg.GetBooks())
	case !gone && int64(len(books.Msg.GetBooks())) != put.Load():
		return "", fmt.Errorf("%s has %d books, want %d", id, len(books.Msg.GetBooks()), put.Load())
	}
	return made.Header().Get(dbcontroller.VersionHeader), nil
}

// dangling is an error as long as a database has books of a library that is not there.
func (s *system) dangling(version string) error {
	ids := func(kind, of string) (map[string]bool, error) {
		out := map[string]bool{}
		for _, c := range s.collections(version, kind) {
			cursor, err := s.db[version].Collection(c).Find(s.ctx, bson.D{})
			if err != nil {
				return nil, err
			}
			var docs []bson.Raw
			if err := cursor.All(s.ctx, &docs); err != nil {
				return nil, err
			}
			for _, d := range docs {
				if name, ok := d.Lookup(of).StringValueOK(); ok { // no tombstone has it
					out[name] = true
				}
			}
		}
		return out, nil
	}
	kind := map[string][2]string{"v1": {"libraries", "library"}, "v2": {"branches", "branch"}}[version]
	there, err := ids(kind[0], "name")
	named, errNamed := ids("books", kind[1])
	if err := errors.Join(err, errNamed); err != nil {
		return err
	}
	for name := range named {
		if !there[name] {
			return fmt.Errorf("books of %s refer to %s, which is gone", version, name)
		}
	}
	if len(named) == 0 {
		return fmt.Errorf("%s has no books", version)
	}
	return nil
}

// TestDeletesOfTargets: a library with books is not deleted, in the words of either version, before
// a switch, over it, after it and after a rollback, while clients of both versions put books into
// it. No book ever refers to a library that is gone, in either database.
func TestDeletesOfTargets(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	s := start(ctx, t)
	w := &targets{
		system: s, old: libraryv1connect.NewLibraryServiceClient(s.http, s.servers[0]),
		now: libraryv2connect.NewLibraryServiceClient(s.http, s.servers[1]),
	}
	n := 0
	// Rounds go on until some of them were served by the version alone.
	until := func(version string) {
		t.Helper()
		for served := 0; served < 6; n++ {
			by, err := w.round(n)
			if err != nil {
				t.Fatalf("round %d: %v", n, err)
			}
			if by == version {
				served++
			}
		}
	}
	until("v1")
	for _, step := range []struct {
		version string
		args    []string
	}{
		{"v2", []string{"begin-upgrade", "deployment", "--target-version", "v2"}},
		{"v1", []string{"rollback"}},
	} {
		done := make(chan error, 1)
		go func() { done <- s.command(ctx, append(step.args, "--server", s.control)...) }()
		until(step.version)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"v1", "v2"} {
			s.eventually("both databases agree", func() error { return s.dangling(version) })
		}
	}
	t.Logf("%d rounds: %d libraries deleted, %d refused", n, w.deleted.Load(), w.refused.Load())
	if w.deleted.Load() == 0 || w.refused.Load() == 0 {
		t.Error("the race has one end only")
	}
}
