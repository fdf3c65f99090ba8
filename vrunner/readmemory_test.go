package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// TestReadsAreBounded: no read of a request brings more than the request, and all together, may hold,
// and what it has brought is held until it is dropped. Lists that can end early do.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		_, views := following(ctx, w, w.clients(), vrunner.Config{})
		v := views["v1"]
		const records, size, room = 20, 1 << 20, 10 << 20
		for i := range records {
			w.put(ctx, "v1", "old", fmt.Sprintf("%02d", i), strings.Repeat("x", size))
		}
		whole := record.Selector{Kind: "old", Key: record.StringKey(""), Prefix: true}
		some := record.Selector{Kind: "old", Key: record.StringKey("0"), Prefix: true} // 10
		few := []record.Selector{{Kind: "old", Key: record.StringKey("03")}, {Kind: "old", Key: record.StringKey("04")}, {Kind: "old", Key: record.StringKey("05")}}
		also := func([]record.Record) ([]record.Selector, error) { return []record.Selector{some}, nil }
		for _, tc := range []struct {
			what   string
			others int64 // bytes that others hold
			code   connect.Code
			read   func(ctx context.Context) ([]record.Record, error)
		}{
			{"list", 0, connect.CodeResourceExhausted, func(ctx context.Context) ([]record.Record, error) { return v.List(ctx, "old", "", "", 0) }},
			{"list of some", 0, 0, func(ctx context.Context) ([]record.Record, error) { return v.List(ctx, "old", "", "", 6) }},
			{"list of some next to others", room / 2, connect.CodeUnavailable, func(ctx context.Context) ([]record.Record, error) { return v.List(ctx, "old", "", "", 6) }},
			{"bounded list", 0, 0, func(ctx context.Context) ([]record.Record, error) {
				recs, more, err := v.ListBounded(ctx, "old", "", "", 100, 4*size)
				if err == nil && (!more || len(recs) != 4) {
					err = fmt.Errorf("%d records, more %t", len(recs), more)
				}
				return recs, err
			}},
			{"bounded list without room", room / 2, 0, func(ctx context.Context) ([]record.Record, error) {
				recs, more, err := v.ListBounded(ctx, "old", "", "", 100, 100*size)
				if err == nil && (!more || len(recs) == 0) {
					err = fmt.Errorf("%d records, more %t", len(recs), more)
				}
				return recs, err
			}},
			{"select", 0, connect.CodeResourceExhausted, func(ctx context.Context) ([]record.Record, error) {
				return v.Select(ctx, []record.Selector{whole}, true)
			}},
			{"select of few", 0, 0, func(ctx context.Context) ([]record.Record, error) { return v.Select(ctx, few, false) }},
			{"select next to others", room - size, connect.CodeUnavailable, func(ctx context.Context) ([]record.Record, error) { return v.Select(ctx, few, false) }},
			{"select at", 0, connect.CodeResourceExhausted, func(ctx context.Context) ([]record.Record, error) {
				snap, err := v.SelectAt(ctx, []record.Selector{whole})
				return snap.Records, err
			}},
			{"list with", 0, connect.CodeResourceExhausted, func(ctx context.Context) ([]record.Record, error) {
				listed, with, err := v.ListWith(ctx, "old", "", "", 3, nil, also)
				return append(listed, with...), err
			}},
			{"get", 0, 0, func(ctx context.Context) ([]record.Record, error) {
				rec, err := v.Get(ctx, "old", "03")
				return []record.Record{rec}, err
			}},
			{"get next to others", room - size/2, connect.CodeUnavailable, func(ctx context.Context) ([]record.Record, error) {
				rec, err := v.Get(ctx, "old", "03")
				return []record.Record{rec}, err
			}},
		} {
			budget := memory.NewBudget(room)
			others, share := budget.Share(room), budget.Share(room)
			others.Take(tc.others)
			reading, read := memory.Read(memory.With(ctx, share))
			recs, err := tc.read(reading)
			if tc.code == 0 && err != nil || tc.code != 0 && (connect.CodeOf(err) != tc.code || !errors.Is(err, record.ErrTooLarge)) {
				t.Errorf("%s: %d records, %v", tc.what, len(recs), err)
			}
			var bytes int64
			for _, r := range recs {
				bytes += int64(len(r.Doc))
			}
			if held := read.Held(); err == nil && held != bytes || err != nil && held != 0 {
				t.Errorf("%s: %d bytes are held, of %d (%v)", tc.what, held, bytes, err)
			}
			if read.Drop(); budget.Left() != room-tc.others {
				t.Errorf("%s: afterwards %d bytes are free", tc.what, budget.Left())
			}
			// Nobody has asked for what the call holds: it counts while it is read.
			if _, err := tc.read(memory.With(ctx, share)); tc.code == connect.CodeResourceExhausted && connect.CodeOf(err) != tc.code || budget.Left() != room-tc.others {
				t.Errorf("%s by itself: %v, and %d bytes are free", tc.what, err, budget.Left())
			}
		}
		if recs, err := v.List(ctx, "old", "", "", 0); err != nil || len(recs) != records {
			t.Errorf("outside of requests: %d records, %v", len(recs), err)
		}
	})
}

// endless is an adapter that shows more names than any memory holds.
type endless struct {
	lines
	pages *int
}

func (e endless) List(_ context.Context, kind, _, _ string, limit int) (out []record.Record, err error) {
	*e.pages++
	if *e.pages > 20 {
		return nil, errors.New("it reads on")
	}
	for i := range limit {
		out = append(out, record.Record{Kind: kind, Key: record.StringKey(fmt.Sprintf("%09d", *e.pages*limit+i))})
	}
	return out, nil
}

// TestOverCountsNamesAsTheyCome: names find room while they are collected, and not when all of them are
// there.
func TestOverCountsNamesAsTheyCome(t *testing.T) {
	t.Parallel()
	stored := sampletest.New(t, "pages")
	pages := 0
	budget := memory.NewBudget(64 << 10)
	share := budget.Share(64 << 10)
	_, err := vrunner.Over(stored, endless{lines{stored}, &pages}).Changes(memory.With(t.Context(), share), "lines")
	if why(err) != refusal.Busy || pages > 2 {
		t.Errorf("%v after %d pages", err, pages)
	}
	if left := budget.Left(); left != 64<<10 {
		t.Errorf("%d bytes are free", left)
	}
}

// crowd is a store of which many records change at once, all of them shown under one name.
type crowd struct{ *sampletest.Store }

func (c crowd) Changes(context.Context, ...string) (vrunner.Subscription, error) { return c, nil }
func (crowd) Close()                                                             {}
func (crowd) Next(context.Context) (all []vrunner.Dirty, err error) {
	for i := range 100 {
		all = append(all, vrunner.Dirty{Kind: "pages", Name: fmt.Sprint("p", i%2)})
	}
	return all, nil
}

// TestOverReportsNamesOnce: the names that many changes of a batch show in are read and reported once,
// and not once for each change.
func TestOverReportsNamesOnce(t *testing.T) {
	t.Parallel()
	stored := sampletest.New(t, "pages")
	for _, page := range []string{"p0", "p1"} {
		stored.Put(t, "pages", bson.D{{Key: "_id", Value: page}, {Key: "value", Value: "a b c"}})
	}
	c, err := vrunner.Over(crowd{stored}, lines{stored}).Changes(t.Context(), "lines", "titles")
	if err != nil {
		t.Fatal(err)
	}
	before := stored.Reads("pages")
	dirty, err := c.Next(t.Context())
	if err != nil || len(dirty) != 2*(3+1) || stored.Reads("pages")-before > 2 {
		t.Errorf("%v, %v, of %d reads", dirty, err, stored.Reads("pages")-before)
	}
}

// bounds is a namespace whose lists can be bounded.
type bounds struct{ *direct }

func (b bounds) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	cut := false
	recs, err := b.Client.List(ctx, record.ListRequest{Token: b.tokens[kind], Prefix: prefix, After: after, Limit: limit, Bytes: bytes, Cut: &cut})
	return recs, cut || len(recs) == limit, err
}

// TestJoinedListsAreBounded: a joined store bounds its lists where the store below can, with what is
// written together in its place.
func TestJoinedListsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDirect(t)
	ctx := t.Context()
	one := len(note("a", "a0", 0).Doc)
	for i := range 10 {
		if err := d.Write(ctx, []record.Mutation{note("a", fmt.Sprint("a", i), i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := any(first(vrunner.Join(d))).(vrunner.BoundedStore); ok {
		t.Error("it bounds what cannot be bounded")
	}
	store, together := vrunner.Join(bounds{d})
	bounded, ok := store.(vrunner.BoundedStore)
	if _, batch := store.(vrunner.BatchStore); !ok || !batch {
		t.Fatalf("a %T is a BoundedStore %t and a BatchStore %t", store, ok, batch)
	}
	pages := func(ctx context.Context, limit, bytes int) (all []string) {
		t.Helper()
		for after, more := "", true; more; {
			var recs []record.Record
			var err error
			if recs, more, err = bounded.ListBounded(ctx, "a", "", after, limit, bytes); err != nil || len(recs) == 0 && more {
				t.Fatalf("after %q: %d records, more %t, %v", after, len(recs), more, err)
			}
			if before := (len(recs) - 1) * one; before >= bytes || len(recs) > limit {
				t.Errorf("%d records, of which all but the last have %d bytes, want less than %d", len(recs), before, bytes)
			}
			for _, r := range recs {
				after, _ = r.Key.Name()
				all = append(all, after)
			}
		}
		return all
	}
	err := together(ctx, func(ctx context.Context) error {
		ms := []record.Mutation{note("a", "a00", 1), note("a", "a95", 1), note("a", "zz", 1)}
		for _, name := range []string{"a0", "a1", "a2", "a3", "a7", "a9"} {
			ms = append(ms, record.Mutation{Kind: "a", Key: record.StringKey(name)})
		}
		if err := store.Write(ctx, ms); err != nil {
			return err
		}
		want := []string{"a00", "a4", "a5", "a6", "a8", "a95", "zz"}
		for limit := 1; limit < 12; limit++ {
			for records := 1; records < 5; records++ {
				if got := pages(ctx, limit, records*(one+2)); !slices.Equal(got, want) {
					t.Errorf("limit %d, %d records: %v, want %v", limit, records, got, want)
				}
			}
		}
		return errors.New("not to be written")
	})
	if err == nil || err.Error() != "not to be written" {
		t.Error(err)
	}
	if got := pages(ctx, 3, 2*one); len(got) != 10 {
		t.Errorf("outside: %v", got)
	}
}

func first[A, B any](a A, _ B) A { return a }

// TestJoinedWritesCount: what is written together is held until it is written, as memory of the request.
func TestJoinedWritesCount(t *testing.T) {
	t.Parallel()
	d := newDirect(t)
	store, together := vrunner.Join(d)
	const room = 10 << 10
	budget := memory.NewBudget(room)
	ctx := memory.With(t.Context(), budget.Share(room))
	write := func(ctx context.Context, name string, size int) error {
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "text", Value: strings.Repeat("x", size)}})
		if err != nil {
			t.Fatal(err)
		}
		return store.Write(ctx, []record.Mutation{{Kind: "a", Key: record.StringKey(name), Doc: raw}})
	}
	err := together(ctx, func(ctx context.Context) error {
		for i := range 100 { // the same record, again and again
			if err := write(ctx, "a", room/4+i); err != nil {
				return err
			}
		}
		if left := budget.Left(); left < room/2 || left > room*3/4 {
			t.Errorf("%d bytes are free", left)
		}
		return nil
	})
	if err != nil || budget.Left() != room {
		t.Errorf("%v, and %d bytes are free", err, budget.Left())
	}
	err = together(ctx, func(ctx context.Context) error {
		for i := range 100 {
			if err := write(ctx, fmt.Sprint("b", i), room/4); err != nil {
				return err
			}
		}
		return nil
	})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || budget.Left() != room {
		t.Errorf("%v, and %d bytes are free", err, budget.Left())
	}
}
