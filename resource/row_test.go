package resource

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// batched is a store that reads much with one command, as a View is.
type batched struct {
	*sampletest.Store
	selects int
	before  func() // of the next Select
}

var _ vrunner.BatchStore = (*batched)(nil)

func (b *batched) Select(ctx context.Context, sels []record.Selector, _ bool) (out []record.Record, err error) {
	b.selects++
	if f := b.before; f != nil {
		b.before = nil
		f()
	}
	for _, sel := range sels {
		name, _ := sel.Key.Name()
		if sel.Prefix {
			recs, err := b.List(ctx, sel.Kind, name, "", 0)
			if err != nil {
				return nil, err
			}
			out = append(recs, out...)
			continue
		}
		rec, err := b.Get(ctx, sel.Kind, name)
		switch {
		case errors.Is(err, record.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			out = append(out, rec)
		}
	}
	return out, nil
}

func (b *batched) ListNames(context.Context, string, string, string, int) ([]string, error) {
	return nil, errors.New("not asked for here")
}

// TestPartsOfAPage: the parts of the resources of a page are read together, as they were
// with their records at one moment.
func TestPartsOfAPage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	const n = 25
	for i := range n {
		s.add(t, fmt.Sprintf("b%02d", i), int32(i))
	}
	store := &batched{Store: s.store}
	books := New(store, s.books.cfg)
	list := func(req *libraryv1.ListRequest) []*libraryv1.Book {
		t.Helper()
		store.selects = 0
		page, err := books.List(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return page.Items
	}
	got := list(&libraryv1.ListRequest{PageSize: 20})
	if len(got) != 20 || store.selects != 2 {
		t.Errorf("listed %d books with %d reads of parts, want 2", len(got), store.selects)
	}
	for i, b := range got {
		if b.GetName() != fmt.Sprintf("books/b%02d", i) || int(b.GetCopies().GetTotal()) != i {
			t.Errorf("book %d is %v", i, b)
		}
	}
	if got := list(&libraryv1.ListRequest{Filter: `name > "books/b19" && copies.total < 23`}); len(got) != 3 || store.selects != 1 {
		t.Errorf("listed %v with %d reads of parts, want 1", got, store.selects)
	}
	if list(&libraryv1.ListRequest{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}}}); store.selects != 0 {
		t.Errorf("%d reads of parts that nobody asked for", store.selects)
	}
	// One is lent and one is deleted behind the list of the records.
	store.before = func() {
		if _, err := s.books.Change(ctx, &libraryv1.LendBookRequest{Name: "books/b01"}, func(b *libraryv1.Book) error { b.Copies.Lent = 1; return nil }); err != nil {
			t.Error(err)
		}
		if err := s.books.Delete(ctx, &libraryv1.DeleteRequest{Name: "books/b02"}); err != nil {
			t.Error(err)
		}
	}
	got = list(&libraryv1.ListRequest{})
	if len(got) != n-1 || got[1].GetCopies().GetLent() != 1 || got[2].GetName() != "books/b03" {
		t.Errorf("listed %v", got)
	}
	now, err := s.books.Get(ctx, &libraryv1.GetRequest{Name: "books/b01"})
	if err != nil || now.GetRevision() != got[1].GetRevision() {
		t.Errorf("listed revision %d, which is %d, %v", got[1].GetRevision(), now.GetRevision(), err)
	}
}
