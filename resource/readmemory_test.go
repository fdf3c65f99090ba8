package resource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// counting is a store that counts what is read of it, as a View does.
type counting struct{ *sampletest.Store }

var (
	_ vrunner.BoundedStore = counting{}
	_ vrunner.BatchStore   = counting{}
)

func count(ctx context.Context, recs ...record.Record) error {
	for _, r := range recs {
		if !memory.ReadsOf(ctx).Take(int64(len(r.Doc))) {
			return refusal.New(refusal.Busy, memory.ErrNoRoom)
		}
	}
	return nil
}

func (c counting) Get(ctx context.Context, kind, key string) (record.Record, error) {
	rec, err := c.Store.Get(ctx, kind, key)
	if err != nil {
		return rec, err
	}
	return rec, count(ctx, rec)
}

func (c counting) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	recs, err := c.Store.List(ctx, kind, prefix, after, limit)
	if err != nil {
		return nil, err
	}
	return recs, count(ctx, recs...)
}

func (c counting) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	recs, more, err := c.Store.ListBounded(ctx, kind, prefix, after, limit, bytes)
	for i, r := range recs {
		full := count(ctx, r)
		switch {
		case full != nil && i == 0:
			return nil, false, full
		case full != nil:
			return recs[:i], true, nil
		}
	}
	return recs, more, err
}

func (c counting) Select(ctx context.Context, sels []record.Selector, _ bool) (out []record.Record, err error) {
	for _, sel := range sels {
		name, _ := sel.Key.Name()
		recs, err := c.Store.List(ctx, sel.Kind, name, "", 0)
		if err != nil {
			return nil, err
		}
		for _, r := range recs {
			if sel.Prefix || r.Key == sel.Key {
				out = append(out, r)
			}
		}
	}
	return out, count(ctx, out...)
}

func (c counting) ListNames(context.Context, string, string, string, int) ([]string, error) {
	return nil, nil
}

// TestReadsCount: what a call holds of what it has read counts as the memory of its request, parts
// and children included, and is given back. What it has dropped does not count: a list looks through
// more than there is room for.
func TestReadsCount(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const books, size, room = 60, 10 << 10, 400 << 10 // for the parts of ten books
	var cfg Config[*libraryv1.Book]
	s := newShelf(t, func(c *Config[*libraryv1.Book]) { cfg = *c })
	table := New(counting{s.store}, cfg)
	part := func(name string, i int) {
		s.store.Put(t, "copies", bson.D{{Key: "_id", Value: fmt.Sprintf("%s/%d", name, i)}, {Key: "total", Value: 1}, {Key: "filler", Value: strings.Repeat("x", size)}})
	}
	for i := range books {
		s.add(t, fmt.Sprintf("b%03d", i), 1)
		part(fmt.Sprintf("books/b%03d", i), 0)
	}
	s.add(t, "large", 1)
	for i := range 2 * room / size {
		part("books/large", i)
	}
	f := newFamily(t, false)
	libraries := f.counting()
	if _, err := libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/a", Title: "A"}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		name := fmt.Sprintf("libraries/a/books/%03d", i)
		f.store.Put(t, "books", bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "title", Value: strings.Repeat("x", size)}, {Key: "revision", Value: int64(1)}})
	}
	for _, tc := range []struct {
		what string
		full bool
		do   func(ctx context.Context) error
	}{
		{"get", true, func(ctx context.Context) error {
			_, err := table.Get(ctx, &libraryv1.GetRequest{Name: "books/large"})
			return err
		}},
		{"find", true, func(ctx context.Context) error {
			_, err := table.Find(ctx, "books/large")
			return err
		}},
		{"update", true, func(ctx context.Context) error {
			_, err := table.Update(ctx, &libraryv1.UpdateBookRequest{Book: &libraryv1.Book{Name: "books/large", Title: "new"}})
			return err
		}},
		{"delete", true, func(ctx context.Context) error {
			return table.Delete(ctx, &libraryv1.DeleteRequest{Name: "books/large"})
		}},
		{"list", true, func(ctx context.Context) error {
			_, err := table.List(ctx, &libraryv1.ListRequest{Filter: `copies.total == 7`})
			return err
		}},
		{"list of others", false, func(ctx context.Context) error {
			page, err := table.List(ctx, &libraryv1.ListRequest{Filter: `copies.total == 7 && title.startsWith("Title b")`})
			if err == nil && (len(page.Items) > 0 || page.NextPageToken != "") {
				err = fmt.Errorf("%d books, and %q", len(page.Items), page.NextPageToken)
			}
			return err
		}},
		{"each", true, func(ctx context.Context) error {
			return table.Each(ctx, "", func(string, *libraryv1.Book) error { return nil })
		}},
		{"watch", false, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			err := table.Watch(ctx, &libraryv1.WatchRequest{}, func(e Event[*libraryv1.Book]) error {
				switch e.Name {
				case fmt.Sprintf("books/b%03d", books-1):
					cancel() // it waits for room for the next
				case "books/large":
					return errors.New("there is no room for it")
				}
				return nil
			})
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return err
		}},
		{"delete with children", false, func(ctx context.Context) error {
			return libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/a"})
		}},
	} {
		budget := memory.NewBudget(room)
		share := budget.Share(room)
		err := tc.do(memory.With(ctx, share))
		if tc.full {
			want(t, err, connect.CodeUnavailable, "too many large requests")
		} else if err != nil {
			t.Errorf("%s: %v", tc.what, err)
		}
		if left := budget.Left(); left != room {
			t.Errorf("%s: afterwards %d of %d bytes are free", tc.what, left, room)
		}
	}
}

// counting is the table of libraries, which own books, over a store that counts.
func (f family) counting() *Table[*libraryv1.Library] {
	libraries := New[*libraryv1.Library](counting{f.store}, Config[*libraryv1.Library]{Kind: "libraries", Pattern: "libraries/{library}"})
	New(counting{f.store}, Config[*libraryv1.Book]{Kind: "books", Pattern: "libraries/{library}/books/{book}", Owner: Owner{Table: libraries}})
	return libraries
}

// TestChildrenOfChildrenAreBounded: as many as one transaction deletes, of all children together.
func TestChildrenOfChildrenAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFamily(t, false)
	if _, err := f.libraries.Insert(ctx, &libraryv1.Library{Name: "libraries/a", Title: "A"}); err != nil {
		t.Fatal(err)
	}
	const books, notes = 3, maxChildren/2 + 1
	for i := range books {
		book := fmt.Sprintf("libraries/a/books/%d", i)
		f.store.Put(t, "books", bson.D{{Key: "_id", Value: book}, {Key: "name", Value: book}, {Key: "title", Value: "B"}, {Key: "revision", Value: int64(1)}})
		for n := range notes {
			f.store.Put(t, "notes", bson.D{{Key: "_id", Value: fmt.Sprintf("%s/notes/%05d", book, n)}})
		}
	}
	before := f.store.Reads("notes")
	want(t, f.libraries.Delete(ctx, &libraryv1.DeleteRequest{Name: "libraries/a"}), connect.CodeFailedPrecondition, "more than 10000 records")
	if pages := f.store.Reads("notes") - before; pages > 2*(notes/1000+1) {
		t.Errorf("%d pages are read, of children that no transaction deletes", pages)
	}
}

// grouped is a store like an adapter: to show a record, it reads a group of that many bytes.
type grouped struct {
	counting
	each int64
	most *int64 // largest read
}

func (g grouped) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	read := memory.ReadsOf(ctx)
	for n := limit; ; n /= 2 {
		recs, more, err := g.Store.ListBounded(ctx, kind, prefix, after, n, bytes)
		if err != nil {
			return nil, false, err
		}
		need := int64(len(recs)) * g.each
		switch {
		case read.Take(need):
			*g.most = max(*g.most, need)
			read.Take(-need)
			return recs, more, count(ctx, recs...)
		case n <= 1:
			return nil, false, refusal.New(refusal.Busy, memory.ErrNoRoom)
		}
	}
}

// TestWatchOverGroupsIsBounded checks that a watch never reads more than its request may hold, even
// if the records that it shows are small parts of what its store reads.
func TestWatchOverGroupsIsBounded(t *testing.T) {
	t.Parallel()
	const books, each, room = 60, 100 << 10, 400 << 10
	var cfg Config[*libraryv1.Book]
	s := newShelf(t, func(c *Config[*libraryv1.Book]) { c.Parts, cfg = nil, *c })
	most := int64(0)
	table := New(grouped{counting{s.store}, each, &most}, cfg)
	for i := range books {
		s.add(t, fmt.Sprintf("b%03d", i), 1)
	}
	budget := memory.NewBudget(room)
	shown, done := 0, errors.New("done")
	err := table.Watch(memory.With(t.Context(), budget.Share(room)), &libraryv1.WatchRequest{}, func(e Event[*libraryv1.Book]) error {
		if e.Type == vrunner.EventLevel {
			return done
		}
		shown++
		return nil
	})
	if !errors.Is(err, done) || shown != books {
		t.Errorf("%d of %d books are shown, %v", shown, books, err)
	}
	if most > room || most < each {
		t.Errorf("up to %d bytes are read at a time, and the request may hold %d", most, room)
	}
}
