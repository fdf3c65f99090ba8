package recordtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// clientNames checks the names of a list, page by page. Names of deleted records may occur. No
// other extra name may occur, and none may be missing.
func clientNames(t *testing.T, b *bench) {
	k := b.managed(t)
	names := awkward[1:] // After is exclusive, and empty means the start
	k.put(t, names...)
	b.apply(t, tokens(k), 1, group(2, k.set("a/dead", -1)), group(2, k.set("aa", -1)))
	dead := []string{"a/dead", "aa"}
	for _, prefix := range []string{"", "a", "a/", "(", "zz"} {
		var want []string
		for _, name := range names {
			if strings.HasPrefix(name, prefix) && !slices.Contains(dead, name) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		for _, limit := range []int{0, 1, 3} {
			var have []string
			for after := ""; ; {
				page, err := b.Client.ListNames(t.Context(), record.ListRequest{Token: k.tok, Prefix: prefix, After: after, Limit: limit})
				if err != nil {
					t.Fatalf("names: %v", err)
				}
				if have = append(have, page...); limit == 0 || len(page) < limit || len(have) > len(names)+len(dead) {
					break
				}
				after = have[len(have)-1]
			}
			// The caller pages by the last name, so the order matters.
			if !slices.IsSorted(have) {
				t.Errorf("prefix %q, limit %d: %q are in no order", prefix, limit, have)
			}
			have = slices.DeleteFunc(have, func(name string) bool { return slices.Contains(dead, name) })
			if !slices.Equal(have, want) {
				t.Errorf("prefix %q, limit %d: %q, want %q", prefix, limit, have, want)
			}
		}
	}
}

// clientSelect checks that Select returns the selected live records of several kinds, each once,
// equal to those of Get.
func clientSelect(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	k.put(t, "a", "a/1", "a/2", "b")
	l.put(t, "a", "c")
	b.apply(t, tokens(k), 1, group(2, k.set("a/2", -1)))
	of := func(k *kind, name string) record.Selector {
		return record.Selector{Kind: k.spec.Name, Key: record.StringKey(name)}
	}
	// Select by name, by prefix, and by both for the same record.
	under := of(k, "a/")
	under.Prefix = true
	for _, tt := range []struct {
		what string
		sels []record.Selector
		want []string
	}{
		{"nothing", nil, nil},
		{"absent", []record.Selector{of(k, "none"), of(l, "none")}, nil},
		{"one", []record.Selector{of(k, "a")}, []string{"k a"}},
		{"tombstone", []record.Selector{of(k, "a/2")}, nil},
		{"twice", []record.Selector{of(k, "b"), of(k, "b"), under, of(k, "a/1")}, []string{"k a/1", "k b"}},
		{"two kinds", []record.Selector{of(l, "c"), of(k, "b"), of(l, "a"), of(k, "c"), under}, []string{"k a/1", "k b", "l a", "l c"}},
	} {
		for _, asList := range []bool{false, true} {
			recs, err := b.Client.Select(t.Context(), record.SelectRequest{Tokens: tokens(k, l), Select: tt.sels, AsList: asList})
			if err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
			var have []string
			for _, r := range recs {
				of, which := k, "k "
				if r.Kind == l.spec.Name {
					of, which = l, "l "
				}
				have = append(have, which+r.Key.String())
				name, _ := r.Key.Name()
				// Each record must equal the result of a Get.
				if got, err := of.get(t, name); err != nil || !bytes.Equal(got, r.Doc) || r.Tombstone || !r.Guard.IsZero() {
					t.Errorf("%s: selected %+v, got %s, %v", tt.what, r, got, err)
				}
			}
			slices.Sort(have)
			if !slices.Equal(have, tt.want) {
				t.Errorf("%s: %q, want %q", tt.what, have, tt.want)
			}
		}
	}
	many := make([]record.Selector, 0, 2500) // more than one command holds
	for i := range cap(many) {
		many = append(many, of(k, fmt.Sprint("none", i)))
	}
	recs, err := b.Client.Select(t.Context(), record.SelectRequest{Tokens: tokens(k), Select: append(many, of(k, "b"))})
	if err != nil || len(recs) != 1 || recs[0].Key != record.StringKey("b") {
		t.Errorf("of many: %v, %v", recs, err)
	}
	if _, err := b.Client.Select(t.Context(), record.SelectRequest{Tokens: tokens(k), Select: []record.Selector{of(k, "a"), of(l, "a")}}); err == nil {
		t.Error("a kind without a token was read")
	}
}

// clientSelectBytes checks that a select of more than Bytes is refused, whatever its form, also as
// part of a list, and that one of at most Bytes is not.
func clientSelectBytes(t *testing.T, b *bench) {
	const (
		each  = 20_000
		spare = 256 // that a backend may count for each record
	)
	k := b.managed(t)
	var sels []record.Selector
	whole := 0
	for _, name := range []string{"p/a", "p/b", "p/c", "p/d"} {
		doc := filled(name, 1, each)
		ok(t, "put", k.do(t, record.Mutation{Kind: k.spec.Name, Key: record.StringKey(name), Doc: doc}))
		sels = append(sels, k.sel(name))
		whole += len(doc)
	}
	all := record.Selector{Kind: k.spec.Name, Key: record.StringKey("p/"), Prefix: true}
	pager, pages := b.Client.(record.Pager)
	for bytes, fits := range map[int]bool{0: true, whole + len(sels)*spare: true, whole - 1: false, 3 * each: false, each: false, 1: false} {
		for what, read := range map[string]func() (int, error){
			"select": func() (int, error) {
				recs, err := b.Client.Select(t.Context(), record.SelectRequest{Tokens: tokens(k), Select: sels, Bytes: bytes})
				return len(recs), err
			},
			"select of a range": func() (int, error) {
				recs, err := b.Client.Select(t.Context(), record.SelectRequest{Tokens: tokens(k), Select: []record.Selector{all}, AsList: true, Bytes: bytes})
				return len(recs), err
			},
			"select at": func() (int, error) {
				if !pages {
					return 0, &record.UnsupportedError{}
				}
				snap, err := pager.SelectAt(t.Context(), record.SelectRequest{Tokens: tokens(k), Select: sels, Bytes: bytes})
				return len(snap.Records), err
			},
			"list with": func() (int, error) {
				if !pages {
					return 0, &record.UnsupportedError{}
				}
				tok := tokens(k)
				listed, with, err := pager.ListWith(t.Context(), tok, record.ListRequest{Token: tok[k.spec.Name], Limit: 1, Bytes: bytes}, func([]record.Record) ([]record.Selector, error) {
					return sels[1:], nil
				})
				return len(listed) + len(with), err
			},
		} {
			n, err := read()
			var unsupported *record.UnsupportedError
			switch {
			case errors.As(err, &unsupported):
			case fits && (err != nil || n != len(sels)), !fits && !errors.Is(err, record.ErrTooLarge):
				t.Errorf("%s of %d bytes: %d records, %v", what, bytes, n, err)
			}
		}
	}
}

// clientSelectMoment changes two records of two kinds together. Readers must always see both
// changes, and every acknowledged change.
func clientSelectMoment(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	both := []record.Selector{{Kind: k.spec.Name, Key: record.StringKey("a")}, {Kind: l.spec.Name, Key: record.StringKey("a")}}
	write := func(ctx context.Context, n int) error {
		return b.Client.Write(ctx, tokens(k, l), []record.Mutation{k.mutation("a", n), l.mutation("a", n)})
	}
	ok(t, "put", write(t.Context(), 0))
	ctx, stop := context.WithCancel(bounded(t))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	const writes = 60
	g.Go(func() error {
		defer stop()
		for n := range writes {
			if err := write(ctx, n+1); err != nil {
				return err
			}
			// A linearizable read must show the write that was just acknowledged.
			recs, err := b.Client.Select(ctx, record.SelectRequest{Tokens: tokens(k, l), Select: both})
			if err != nil {
				return err
			}
			for _, r := range recs {
				if have := r.Doc.Lookup("n").AsInt64(); have != int64(n+1) {
					return fmt.Errorf("%d was read after %d was acknowledged", have, n+1)
				}
			}
		}
		return nil
	})
	g.Go(func() error {
		// Both sorts of reads must show both records of one moment.
		for asList := false; ctx.Err() == nil; asList = !asList {
			recs, err := b.Client.Select(ctx, record.SelectRequest{Tokens: tokens(k, l), Select: both, AsList: asList})
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			if len(recs) != 2 || recs[0].Doc.Lookup("n").AsInt64() != recs[1].Doc.Lookup("n").AsInt64() {
				return fmt.Errorf("read at two moments: %v", recs)
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// asList returns the reads that are as recent as a list. Each returns the state of the record, or
// -1.
func (k *kind) asList(name string) map[string]func(ctx context.Context) (int64, error) {
	key := record.StringKey(name)
	of := func(recs []record.Record, err error) (int64, error) {
		for _, r := range recs {
			if r.Key == key {
				return r.Doc.Lookup("n").AsInt64(), err
			}
		}
		return -1, err
	}
	selected := func(ctx context.Context, keys ...record.Key) (int64, error) {
		req := record.SelectRequest{Tokens: tokens(k), AsList: true}
		for _, key := range keys {
			req.Select = append(req.Select, record.Selector{Kind: k.spec.Name, Key: key})
		}
		return of(k.b.Client.Select(ctx, req))
	}
	return map[string]func(ctx context.Context) (int64, error){
		"select of one": func(ctx context.Context) (int64, error) { return selected(ctx, key) },
		"select of two": func(ctx context.Context) (int64, error) { return selected(ctx, key, record.StringKey("other")) },
		"list": func(ctx context.Context) (int64, error) {
			return of(k.b.Client.List(ctx, record.ListRequest{Token: k.tok, Prefix: name}))
		},
	}
}

// clientAsList checks that list reads show acknowledged writes, and records that refused a write.
// No read may take back a state that another has shown, or show a refused write.
func clientAsList(t *testing.T, b *bench) {
	k := b.managed(t)
	reads := k.asList("a")
	k.put(t, "b")
	write := func(ctx context.Context, ms ...record.Mutation) error { return b.Client.Write(ctx, tokens(k), ms) }
	ok(t, "put", write(t.Context(), k.mutation("a", 0)))
	ctx, stop := context.WithCancel(bounded(t))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	const writes = 60
	g.Go(func() error {
		defer stop()
		for n := 1; n <= writes; n++ {
			ms := []record.Mutation{k.mutation("a", n)}
			if n%2 == 0 {
				ms = append(ms, k.mutation("b", n))
			}
			if err := write(ctx, ms...); err != nil {
				return err
			}
			// A refused create must not become visible.
			taken := k.mutation("a", n+1000)
			taken.Absent = true
			if err := write(ctx, taken); !errors.Is(err, record.ErrExists) {
				return fmt.Errorf("created again: %w", err)
			}
			for what, read := range reads {
				if have, err := read(ctx); err != nil || have != int64(n) {
					return fmt.Errorf("%s: %d, %w after %d was acknowledged", what, have, err, n)
				}
			}
		}
		return nil
	})
	g.Go(func() error {
		var last int64
		for ctx.Err() == nil {
			for what, read := range reads {
				have, err := read(ctx)
				if err == nil && have < last {
					return fmt.Errorf("%s: %d after %d was shown", what, have, last)
				}
				if err != nil && ctx.Err() == nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				last = max(last, have)
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// A delete must be visible at once, too.
	gone := k.mutation("a", -1)
	ok(t, "delete", write(t.Context(), gone))
	for what, read := range reads {
		if have, err := read(t.Context()); err != nil || have != -1 {
			t.Errorf("%s: %d, %v after it was deleted", what, have, err)
		}
	}
}
