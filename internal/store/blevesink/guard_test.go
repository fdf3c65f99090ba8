package blevesink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/blevesearch/bleve/v2"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
)

// library is the interface under a name that none of its methods has.
type library = bleve.Index

// faulty is an index of bleve whose batches fail with an error.
type faulty struct {
	library
	err error
}

func (f *faulty) Batch(*bleve.Batch) error { return f.err }

func item(name, text string, version byte) sink.Item {
	doc := sink.Document{"text": {text}}
	if text == "" {
		doc = nil
	}
	return sink.Item{Kind: "items", Name: name, Doc: doc, Guard: record.Guard{Epoch: 1, Version: record.Version{0: version}}, Digest: doc.Digest()}
}

func openIn(t *testing.T, folder string) *Index {
	t.Helper()
	x, err := Open(Config{Folder: folder, Kinds: map[string][]string{"items": {"text"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() }) // a test may have closed it
	return x
}

// TestFailedWrite: after a failed write, the index refuses everything until it is opened again.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err     error
		damaged bool
	}{
		"no room":         {&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, false},
		"no room in text": {fmt.Errorf("file resize error: %s", syscall.ENOSPC), false},
		"no access":       {os.ErrPermission, false},
		"damaged":         {errors.New("invalid checksum"), true},
	} {
		folder := filepath.Join(t.TempDir(), "v1")
		x := openIn(t, folder)
		whole := x.bleve
		x.bleve = &faulty{whole, tc.err}
		err := x.Write(t.Context(), []sink.Item{item("a", "word", 1)}, sink.State{})
		if !errors.Is(err, sink.ErrReopen) || errors.Is(err, sink.ErrDamaged) != tc.damaged || !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", name, err)
		}
		x.bleve = nil // a use of it panics
		_, state := x.State(t.Context())
		_, found := x.Search(t.Context(), record.SearchRequest{Kind: "items"})
		for _, err := range []error{state, found, x.Purge(t.Context(), record.Guard{}), x.Write(t.Context(), nil, sink.State{})} {
			if !errors.Is(err, sink.ErrReopen) {
				t.Errorf("%s: afterwards: %v", name, err)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = openIn(t, folder)
		if err := x.Write(t.Context(), []sink.Item{item("a", "word", 1)}, sink.State{}); err != nil {
			t.Errorf("%s: opened again: %v", name, err)
		}
	}
}

// TestPanics: a panic of the library is an error. A reading call does not end the use of the index.
func TestPanics(t *testing.T) {
	t.Parallel()
	x := openIn(t, filepath.Join(t.TempDir(), "v1"))
	whole := x.bleve
	x.bleve = nil
	_, found := x.Search(t.Context(), record.SearchRequest{Kind: "items"})
	_, entries := x.Entries(t.Context(), "items", "", 10)
	_, looked := x.Lookup(t.Context(), "items", []string{"a"})
	for _, err := range []error{found, entries, looked} {
		if !errors.Is(err, sink.ErrUnread) {
			t.Errorf("a reading call: %v", err)
		}
	}
	x.bleve = whole
	if err := x.Write(t.Context(), nil, sink.State{}); err != nil {
		t.Error(err)
	}
	x.bleve = nil
	if err := x.Forget(t.Context(), 1); !errors.Is(err, sink.ErrDamaged) {
		t.Errorf("a writing call: %v", err)
	}
	x.bleve = whole
}

// TestForeignFolder: no file of others is deleted.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "v1")
	if err := os.MkdirAll(filepath.Join(folder, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	x, err := Open(Config{Folder: folder, Kinds: map[string][]string{}})
	if want := folder + " is not a search index: choose another search.folder"; err == nil || !errors.Is(err, errNotIndex) {
		t.Fatalf("%v %v, want %s", x, err, want)
	}
	if _, err := os.Stat(filepath.Join(folder, "store")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(folder, "store")); err != nil {
		t.Fatal(err)
	}
	x = openIn(t, folder) // an empty one may be used
	if err := x.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(folder)); len(left) > 0 || err != nil {
		t.Errorf("a removed index leaves %v %v", left, err)
	}
}

// TestLockedWhileAnew: a folder is not opened twice while one process makes it anew.
func TestLockedWhileAnew(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "v1")
	held, err := lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	if x, err := Open(Config{Folder: folder, Kinds: map[string][]string{}}); !errors.Is(err, ErrInUse) {
		t.Errorf("%v %v", x, err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	openIn(t, folder)
}

// TestShortBeginning: beginnings of too many words are refused, all of a query together.
func TestShortBeginning(t *testing.T) {
	t.Parallel()
	x := openIn(t, filepath.Join(t.TempDir(), "v1"))
	var items []sink.Item
	text := ""
	for i := range mostWords * 2 / 3 {
		text += fmt.Sprintf("a%05d ", i)
	}
	items = append(items, item("n", text, 1))
	if err := x.Write(t.Context(), items, sink.State{}); err != nil {
		t.Fatal(err)
	}
	req := record.SearchRequest{Kind: "items", Terms: []record.SearchTerm{{Text: "a", Prefix: true}}}
	if page, err := x.Search(t.Context(), req); err != nil || len(page.Names) != 1 {
		t.Errorf("one beginning: %v %v", page, err)
	}
	req.Terms = append(req.Terms, record.SearchTerm{Text: "a0", Prefix: true, Not: true})
	var broad *record.SearchTooBroadError
	if page, err := x.Search(t.Context(), req); !errors.As(err, &broad) || broad.Beginning != "a0" {
		t.Errorf("two beginnings: %v %v", page, err)
	}
}

// TestSearchesAtOnce: more searches than the limit wait.
func TestSearchesAtOnce(t *testing.T) {
	t.Parallel()
	x := openIn(t, filepath.Join(t.TempDir(), "v1"))
	for range searches {
		x.searching <- struct{}{}
	}
	req := record.SearchRequest{Kind: "items"}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := x.Search(soon, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it did not wait: %v", err)
	}
	<-x.searching
	if _, err := x.Search(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// TestRemovesAll: removal reaches all documents over several batches, and leaves the others.
func TestRemovesAll(t *testing.T) {
	t.Parallel()
	x := openIn(t, filepath.Join(t.TempDir(), "v1"))
	var items []sink.Item
	for i := range 2*removeTogether + 10 {
		items = append(items, item(fmt.Sprintf("dead%05d", i), "", 1))
	}
	items = append(items, item("late", "", 9), item("live", "word", 1))
	if err := x.Write(t.Context(), items, sink.State{}); err != nil {
		t.Fatal(err)
	}
	if err := x.Purge(t.Context(), record.Guard{Epoch: 1, Version: record.Version{0: 5}}); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Documents(); n != 2 || err != nil {
		t.Errorf("%d documents are left, %v", n, err)
	}
	if err := x.Forget(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Documents(); n != 0 || err != nil {
		t.Errorf("%d documents are left, %v", n, err)
	}
}
