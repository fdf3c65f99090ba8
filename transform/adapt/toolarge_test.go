package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/adapt"
)

// scarce is a store that reads so many bytes at a time, as one whose requests have little room, and
// that counts them.
type scarce struct {
	*namespace
	most int
}

var _ adapt.PagingStore = scarce{}

func (s scarce) count(ctx context.Context, recs []record.Record, err error) ([]record.Record, error) {
	size := 0
	for _, r := range recs {
		size += len(r.Doc)
	}
	if err == nil && (size > s.most || !memory.ReadsOf(ctx).Take(int64(size))) {
		return nil, fmt.Errorf("%d bytes: %w", size, record.ErrTooLarge)
	}
	return recs, err
}

func (s scarce) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	recs, err := s.namespace.List(ctx, kind, prefix, after, limit)
	return s.count(ctx, recs, err)
}

func (s scarce) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	recs, err := s.namespace.Select(ctx, sels, asList)
	return s.count(ctx, recs, err)
}

func (s scarce) SelectAt(ctx context.Context, sels []record.Selector) (record.Snapshot, error) {
	snap, err := s.namespace.SelectAt(ctx, sels)
	if err == nil {
		_, err = s.count(ctx, snap.Records, nil)
	}
	return snap, err
}

func (s scarce) ListWith(ctx context.Context, kind, prefix, after string, limit int, kinds []string, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	listed, with, err = s.namespace.ListWith(ctx, kind, prefix, after, limit, kinds, also)
	_, err = s.count(ctx, slices.Concat(listed, with), err)
	return listed, with, err
}

// TestGroupsTooLargeToBeReadTogether: a list whose groups do not fit in at once reads fewer at a time,
// and holds in the end what it shows.
func TestGroupsTooLargeToBeReadTogether(t *testing.T) {
	t.Parallel()
	const records, size = 40, 1000
	const most = 4 * size
	over1 := newFace(t, memstore.New(), split(t), "v1", "v2", adapt.Config{})
	over2 := wholesOverV2(t)
	for i := range records {
		doc := whole(fmt.Sprintf("%02d", i), i, strings.Repeat("x", size))
		put(t, over1.stored, "wholes", doc)
		put(t, over2.adapter, "wholes", doc)
	}
	for _, tc := range []struct {
		face  face
		cfg   adapt.Config
		kinds []string
	}{
		{over1, adapt.Config{}, []string{"heads", "parts"}},
		{over2, adapt.Config{Leads: map[string]string{"wholes": "heads"}}, []string{"wholes"}},
	} {
		a, err := adapt.New(scarce{tc.face.stored, most}, tc.face.show, tc.face.keep, tc.cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range tc.kinds {
			budget := memory.NewBudget(records * size * 2)
			share := budget.Share(records * size * 2)
			ctx, read := memory.Read(memory.With(t.Context(), share))
			var got []record.Record
			for after, more := "", true; more; {
				var recs []record.Record
				if recs, more, err = a.ListBounded(ctx, kind, "", after, 1000, 10*size); err != nil {
					t.Fatalf("%s after %q: %v", kind, after, err)
				}
				got = append(got, recs...)
				after, _ = got[len(got)-1].Key.Name()
			}
			want, err := tc.face.adapter.List(t.Context(), kind, "", "", 1000)
			if err != nil || names(got) != names(want) || len(got) < records {
				t.Errorf("%s: %s, want %s, %v", kind, names(got), names(want), err)
			}
			var shown int64
			for _, r := range got {
				shown += int64(len(r.Doc))
			}
			if held := read.Held(); held > shown {
				t.Errorf("%s: %d bytes are held for %d that are shown", kind, held, shown)
			}
			read.Drop()
		}
		if _, err := a.List(t.Context(), tc.kinds[0], "", "", 1000); err != nil && !errors.Is(err, record.ErrTooLarge) {
			t.Error(err)
		}
	}
	tiny, err := adapt.New(scarce{over1.stored, size / 2}, over1.show, over1.keep, adapt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := tiny.ListBounded(t.Context(), "heads", "", "", 1000, 10*size); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("a group that is too large by itself: %v", err)
	}
}

// TestIndexesShareABound: the indexes of all kinds together have so many bytes, as they are filled and
// as they grow. Where others have them, names are gone over.
func TestIndexesShareABound(t *testing.T) {
	t.Parallel()
	const room = 1 << 20
	w := ways["names that sort otherwise"]
	f := w.make(t, memstore.New())
	f.adapter.Remember(100, room)
	add := func(i int) {
		t.Helper()
		put(t, f.adapter, w.kind, w.doc(w.name(i)))
	}
	lists := func(want int, least, most int64) {
		t.Helper()
		if got := strings.Fields(pages(t, f.adapter, w.kind, "", 7)); len(got) != want {
			t.Errorf("%d are listed, want %d", len(got), want)
		}
		if have := f.adapter.Remembered(0); have < least || have > most {
			t.Errorf("%d bytes are remembered, want from %d to %d", have, least, most)
		}
	}
	for i := range 20 {
		add(i)
	}
	lists(20, 20*100, 20*200)
	add(20)
	lists(21, 21*100, 21*200)
	others := room - f.adapter.Remembered(0)
	f.adapter.Remembered(others)
	add(21)
	lists(22, others, others)
	lists(22, others, others)
	f = w.make(t, memstore.New())
	f.adapter.Remember(100, room)
	f.adapter.Remembered(room)
	add(1)
	lists(1, room, room)
	if f.adapter.Filled(w.kind) {
		t.Error("an index is in memory, although others have all of it")
	}
	// Each kind has a part of its own that no other kind takes.
	f = w.make(t, memstore.New())
	f.adapter.Remember(100, room)
	f.adapter.Share()
	f.adapter.Remembered(room)
	for i := range 20 {
		add(i)
		lists(i+1, room, room)
	}
	if !f.adapter.Filled(w.kind) {
		t.Error("a small index is not in memory, because others are large")
	}
}
