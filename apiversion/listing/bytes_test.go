package listing_test

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/memory"
)

// TestScansAreBoundedInBytes: a list looks through so many bytes of records, however few they are. A
// page in name order ends there, and another order is refused. Memory has to hold the records of one
// fetch, and not all of them.
func TestScansAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const each, together = 16 << 20, 4
	d := kinds(t)
	budget := memory.NewBudget(together*each + each/2)
	list := func(records int, w want) (page listing.Page[*dynamicpb.Message], fetched int, err error) {
		src := newShelf(t, d, records, func(int, *dynamicpb.Message) {}).source(d)
		fetch := src.Fetch
		src.Fetch = func(ctx context.Context, after string, limit int) ([]*dynamicpb.Message, error) {
			recs, err := fetch(ctx, after, min(limit, together))
			if fetched += len(recs); !memory.ReadsOf(ctx).Take(int64(len(recs) * each)) {
				return nil, errors.New("no room for them")
			}
			if err == nil && len(recs) == together {
				err = listing.ErrMore
			}
			return recs, err
		}
		src.Size = func(*dynamicpb.Message) int { return each }
		share := budget.Share(1 << 40)
		defer share.End()
		page, err = listing.List(memory.With(t.Context(), share), request(t, w), src)
		return page, fetched, err
	}
	const records = 30 // 480 MiB
	seen := 0
	for w := (want{filter: "i32 == 7"}); ; {
		page, fetched, err := list(records, w)
		if seen += fetched; err != nil || len(page.Items) > 0 || fetched > 128<<20/each {
			t.Fatalf("%d records are fetched for %d items, %v", fetched, len(page.Items), err)
		}
		if w.token = page.NextPageToken; w.token == "" {
			break
		}
	}
	if seen != records {
		t.Errorf("%d records of %d are looked through", seen, records)
	}
	if page, _, err := list(records, want{order: "i32 desc", size: 5}); err != nil || len(page.Items) != 5 {
		t.Errorf("by another field: %d items, %v", len(page.Items), err)
	}
	if _, fetched, err := list(10*records, want{order: "i32 desc"}); connect.CodeOf(err) != connect.CodeFailedPrecondition || fetched > 600<<20/each {
		t.Errorf("of too many: %d are fetched, %v", fetched, err)
	}
	if left := budget.Left(); left != together*each+each/2 {
		t.Errorf("%d bytes are free in the end", left)
	}
}
