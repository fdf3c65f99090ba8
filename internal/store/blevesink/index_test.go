package blevesink_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/engine/sink/sinktest"
	"dbcontroller.dev/internal/store/blevesink"
	"dbcontroller.dev/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, c blevesink.Config) *blevesink.Index {
	t.Helper()
	x, err := blevesink.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = x.Close() // a test may have closed it
	})
	return x
}

func config(t testing.TB) blevesink.Config {
	c := blevesink.Config{Folder: filepath.Join(t.TempDir(), "indexes", "v1"), Kinds: map[string][]string{}}
	for _, kind := range sinktest.Kinds {
		c.Kinds[kind] = []string{"text"}
	}
	return c
}

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Exercise(t, func(t *testing.T) sinktest.Backend {
		c := config(t)
		x := open(t, c)
		return sinktest.Backend{Sink: x, Reopen: func() sink.Sink {
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			x = open(t, c)
			return x
		}}
	})
}

func write(t testing.TB, x *blevesink.Index, kind, name string, doc sink.Document, version byte) {
	t.Helper()
	item := sink.Item{Kind: kind, Name: name, Doc: doc, Guard: record.Guard{Epoch: 1, Version: record.Version{0: version}}, Digest: doc.Digest()}
	if err := x.Write(t.Context(), []sink.Item{item}, sink.State{Generation: 1}); err != nil {
		t.Fatal(err)
	}
}

// TestSearch finds records by words of their fields and names.
func TestSearch(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Kinds = map[string][]string{"books": {"title", "author.name", "tags"}, "pens": {"title"}}
	x := open(t, c)
	write(t, x, "books", "shelves/a/books/1", sink.Document{"title": {"The Old Man and the Sea"}, "author.name": {"Ernest Hemingway"}, "tags": {"sea", "us-west2"}}, 1)
	write(t, x, "books", "shelves/a/books/2", sink.Document{"title": {"Sea Sea Sea"}, "tags": {"river"}}, 1)
	write(t, x, "books", "shelves/b/books/3", sink.Document{"title": {"Ernest"}, "author.name": {"Jane"}, "tags": {"old", "man"}}, 1)
	write(t, x, "books", "shelves/b/books/4", sink.Document{"title": {"gone sea"}}, 1)
	write(t, x, "books", "shelves/b/books/4", nil, 2)
	write(t, x, "pens", "shelves/a/books/1", sink.Document{"title": {"sea"}, "tags": {"undeclared"}}, 1)
	const one, two, three = "shelves/a/books/1", "shelves/a/books/2", "shelves/b/books/3"
	for name, tc := range map[string]struct {
		req  record.SearchRequest
		want []string
	}{
		"everything":                 {record.SearchRequest{}, []string{one, two, three}},
		"a word in any field":        {record.SearchRequest{Terms: []record.SearchTerm{{Text: "ernest"}}}, []string{one, three}},
		"a word in a field":          {record.SearchRequest{Terms: []record.SearchTerm{{Field: "author.name", Text: "ERNEST"}}}, []string{one}},
		"words that are common":      {record.SearchRequest{Terms: []record.SearchTerm{{Text: "the"}}}, []string{one}},
		"two words together":         {record.SearchRequest{Terms: []record.SearchTerm{{Text: "old man"}}}, []string{one}},
		"not over two texts":         {record.SearchRequest{Terms: []record.SearchTerm{{Field: "tags", Text: "old man"}}}, nil},
		"two words anywhere":         {record.SearchRequest{Terms: []record.SearchTerm{{Text: "old"}, {Text: "man"}}}, []string{one, three}},
		"a word with a dash":         {record.SearchRequest{Terms: []record.SearchTerm{{Text: "us-west2"}}}, []string{one}},
		"a beginning":                {record.SearchRequest{Terms: []record.SearchTerm{{Text: "hem", Prefix: true}}}, []string{one}},
		"a word is no beginning":     {record.SearchRequest{Terms: []record.SearchTerm{{Text: "hem"}}}, nil},
		"a beginning after a word":   {record.SearchRequest{Terms: []record.SearchTerm{{Text: "us-we", Prefix: true}}}, []string{one}},
		"not":                        {record.SearchRequest{Terms: []record.SearchTerm{{Text: "sea"}, {Text: "river", Not: true}}}, []string{one}},
		"only not":                   {record.SearchRequest{Terms: []record.SearchTerm{{Text: "river", Not: true}}}, []string{one, three}},
		"the name":                   {record.SearchRequest{Terms: []record.SearchTerm{{Field: record.NameField, Text: "3"}}}, []string{three}},
		"a name in any field":        {record.SearchRequest{Terms: []record.SearchTerm{{Text: "b"}}}, []string{three}},
		"names below":                {record.SearchRequest{Prefix: "shelves/a/"}, []string{one, two}},
		"names that begin":           {record.SearchRequest{Prefix: "shelves/b/books/3"}, []string{three}},
		"no names that begin so":     {record.SearchRequest{Prefix: "helves/"}, nil},
		"no word":                    {record.SearchRequest{Terms: []record.SearchTerm{{Text: "--"}}}, nil},
		"what a record no longer is": {record.SearchRequest{Terms: []record.SearchTerm{{Text: "gone"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tc.req.Kind, tc.req.ByName = "books", true
			page, err := x.Search(t.Context(), tc.req)
			if err != nil || !page.Done {
				t.Fatal(page, err)
			}
			if diff := gocmp.Diff(tc.want, page.Names); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			tc.req.ByName = false
			page, err = x.Search(t.Context(), tc.req)
			slices.Sort(page.Names)
			if diff := gocmp.Diff(tc.want, page.Names); diff != "" || err != nil {
				t.Errorf("best first: %v (-want +got):\n%s", err, diff)
			}
		})
	}
	page, err := x.Search(t.Context(), record.SearchRequest{Kind: "books", Terms: []record.SearchTerm{{Field: "title", Text: "sea"}}})
	if diff := gocmp.Diff([]string{two, one}, page.Names); diff != "" || err != nil {
		t.Errorf("the one with the word three times is not the first: %v\n%s", err, diff)
	}
	for _, req := range []record.SearchRequest{{Kind: "inks"}, {Kind: "pens", Terms: []record.SearchTerm{{Field: "tags", Text: "undeclared"}}}} {
		var unsupported *record.UnsupportedError
		if page, err := x.Search(t.Context(), req); !errors.As(err, &unsupported) {
			t.Errorf("%v: %v %v", req, page, err)
		}
	}
}

// TestPages: pages by name have each record once.
func TestPages(t *testing.T) {
	t.Parallel()
	x := open(t, config(t))
	var want []string
	for _, name := range []string{"a", "a/b", "a0", "b", "b\xff", "ж", "z"} {
		write(t, x, "items", name, sink.Document{"text": {"word"}}, 1)
		want = append(want, name)
	}
	slices.SortFunc(want, cmp.Compare[string])
	var got []string
	for req := (record.SearchRequest{Kind: "items", ByName: true, Limit: 2, Terms: []record.SearchTerm{{Text: "word"}}}); ; {
		page, err := x.Search(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, page.Names...); page.Done {
			break
		}
		req.After = page.Last
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOpen: a folder belongs to one process, and what cannot be used is made anew.
func TestOpen(t *testing.T) {
	t.Parallel()
	c := config(t)
	x := open(t, c)
	write(t, x, "items", "a", sink.Document{"text": {"word"}}, 1)
	if second, err := blevesink.Open(c); !errors.Is(err, blevesink.ErrInUse) {
		t.Fatalf("a second time: %v %v", second, err)
	}
	holds := func(x *blevesink.Index, want uint64) {
		t.Helper()
		st, err := x.State(t.Context())
		if n, counted := x.Documents(); n != want || st.Generation != want || err != nil || counted != nil {
			t.Fatalf("%d documents, state %+v, %v %v; want %d", n, st, err, counted, want)
		}
	}
	again := func(c blevesink.Config) *blevesink.Index {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = open(t, c)
		return x
	}
	holds(again(c), 1)
	c.Revision = "2"
	holds(again(c), 0)
	write(t, x, "items", "a", sink.Document{"text": {"word"}}, 1)
	c.Kinds["notes"] = []string{"text", "more"}
	holds(again(c), 0)
	write(t, x, "items", "a", sink.Document{"text": {"word"}}, 1)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Folder, "index_meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	x = open(t, c)
	holds(x, 0)
}
