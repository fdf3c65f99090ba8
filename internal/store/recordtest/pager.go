package recordtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

func withPager(run func(*testing.T, *bench, record.Pager)) func(*testing.T, *bench) {
	return withClient(func(t *testing.T, b *bench) {
		pager, ok := b.Client.(record.Pager)
		if !ok {
			t.Log("left out: the client is no Pager")
			return
		}
		k := b.managed(t)
		_, err := pager.SelectAt(t.Context(), record.SelectRequest{Tokens: tokens(k), Select: []record.Selector{{Kind: k.spec.Name, Key: record.StringKey("none")}}})
		var unsupported *record.UnsupportedError
		if errors.As(err, &unsupported) {
			t.Logf("left out: %v", err)
			return
		}
		run(t, b, pager)
	})
}

// pagerListWith checks that ListWith returns the selected records, by names and by prefixes,
// whatever other records lie between them.
func pagerListWith(t *testing.T, b *bench, pager record.Pager) {
	k, l := b.managed(t), b.managed(t)
	heads := slices.DeleteFunc(slices.Sorted(slices.Values(awkward)), func(name string) bool { return name == "" })
	k.put(t, append([]string{"dead"}, heads...)...)
	var parts []string
	for _, name := range heads {
		parts = append(parts, name+"/1", name+"/2")
	}
	for i := range 150 { // more than a read skips, between "a.b" and "a/b", and after "aa"
		parts = append(parts, fmt.Sprintf("a.x%03d", i), fmt.Sprintf("aa-%03d", i), fmt.Sprintf("c/%03d", i))
	}
	slices.Sort(parts)
	parts = slices.Compact(parts)
	l.put(t, parts...)
	b.apply(t, tokens(k, l), 1, group(2, k.set("dead", -1)), group(2, l.set("b/1", -1)))
	parts = slices.DeleteFunc(parts, func(name string) bool { return name == "b/1" })
	for n, limit := range []int{0, 2, 5, 0, 2, 5, 2, 5} {
		exact := n < 3 // select names as well as prefixes
		for after, pages := "", 0; pages < 40; pages++ {
			var want, have []string
			listed, with, err := pager.ListWith(t.Context(), tokens(k, l), record.ListRequest{Token: k.tok, After: after, Limit: limit}, func(recs []record.Record) ([]record.Selector, error) {
				var sels []record.Selector
				for _, r := range recs {
					name, _ := r.Key.Name()
					sels = append(sels, record.Selector{Kind: l.spec.Name, Key: record.StringKey(name + "/"), Prefix: true})
					if exact {
						sels = append(sels, l.sel("c/"+name), l.sel("c/001"))
					}
				}
				return sels, nil
			})
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			for _, name := range parts {
				if exact && len(listed) > 0 && name == "c/001" || slices.ContainsFunc(listed, func(r record.Record) bool { head, _ := r.Key.Name(); return strings.HasPrefix(name, head+"/") }) {
					want = append(want, name)
				}
			}
			for _, r := range with {
				name, _ := r.Key.Name()
				have = append(have, name)
			}
			slices.Sort(have)
			if !slices.Equal(have, want) {
				t.Errorf("%d after %q: came with %q, want %q", limit, after, have, want)
			}
			// The listed records must be those of an ordinary List.
			alone, err := b.Client.List(t.Context(), record.ListRequest{Token: k.tok, After: after, Limit: limit})
			if err != nil || !slices.EqualFunc(listed, alone, func(a, b record.Record) bool {
				return a.Key == b.Key && a.Kind == b.Kind && string(a.Doc) == string(b.Doc)
			}) {
				t.Errorf("%d after %q: listed %v, and %v alone, %v", limit, after, listed, alone, err)
			}
			if limit == 0 || len(listed) < limit {
				break
			}
			after, _ = listed[len(listed)-1].Key.Name()
		}
	}
	// An error of the callback must reach the caller.
	refusal := errors.New("no")
	if _, _, err := pager.ListWith(t.Context(), tokens(k, l), record.ListRequest{Token: k.tok}, func([]record.Record) ([]record.Selector, error) { return nil, refusal }); !errors.Is(err, refusal) {
		t.Errorf("list: %v, want %v", err, refusal)
	}
	if _, _, err := pager.ListWith(t.Context(), tokens(k), record.ListRequest{Token: k.tok}, func([]record.Record) ([]record.Selector, error) {
		return []record.Selector{l.sel("a/1")}, nil
	}); err == nil {
		t.Error("a kind without a token was read")
	}
}

// pagerMoment checks that a record and its parts, which change together, are always seen together.
func pagerMoment(t *testing.T, b *bench, pager record.Pager) {
	k, l := b.managed(t), b.managed(t)
	names := []string{"a", "b", "c", "d"}
	ctx, stop := context.WithCancel(bounded(t))
	defer stop()
	write := func(n int) error {
		var ms []record.Mutation
		for _, name := range names {
			ms = append(ms, k.mutation(name, n), l.mutation(name+"/1", n))
		}
		return b.Client.Write(ctx, tokens(k, l), ms)
	}
	ok(t, "write", write(0))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer stop()
		for n := range 60 {
			if err := write(n + 1); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		// All records must have one state, and states must not go back.
		for last := int64(0); ctx.Err() == nil; {
			listed, with, err := pager.ListWith(ctx, tokens(k, l), record.ListRequest{Token: k.tok, Limit: 3}, func(recs []record.Record) (sels []record.Selector, err error) {
				for _, r := range recs {
					name, _ := r.Key.Name()
					sels = append(sels, record.Selector{Kind: l.spec.Name, Key: record.StringKey(name + "/"), Prefix: true})
				}
				return sels, nil
			})
			if ctx.Err() != nil {
				return nil
			}
			if err != nil || len(listed) != 3 || len(with) != 3 {
				return fmt.Errorf("listed %v with %v, %w", listed, with, err)
			}
			// The first record's state is the state of the moment.
			first := listed[0].Doc.Lookup("n").AsInt64()
			for _, r := range append(listed, with...) {
				if n := r.Doc.Lookup("n").AsInt64(); n != first || n < last {
					return fmt.Errorf("%s has state %d next to %d, after %d", r.Key, n, first, last)
				}
			}
			last = first
		}
		return nil
	})
	ok(t, "list", g.Wait())
}

// pagerSince checks that Since returns all changes after a position. Its place must not be before a
// snapshot that was read earlier.
func pagerSince(t *testing.T, b *bench, pager record.Pager) {
	k, other := b.managed(t), b.managed(t)
	kinds := []record.KindSpec{k.spec}
	k.put(t, "a", "b")
	since := func(pos record.Position) record.ChangeBatch {
		t.Helper()
		batch, err := pager.Since(t.Context(), kinds, pos)
		var unsupported *record.UnsupportedError
		if errors.As(err, &unsupported) {
			t.Skipf("left out: %v", err)
		}
		if err != nil {
			t.Fatalf("since: %v", err)
		}
		return batch
	}
	pos := since(record.Position{}).Pos
	for n := range 30 {
		name := fmt.Sprint("n", n)
		ok(t, "write", k.do(t, k.mutation(name, n)))
		if n%3 == 0 {
			ok(t, "delete", k.do(t, record.Mutation{Kind: k.spec.Name, Key: record.StringKey(name)}))
		}
		ok(t, "write of another kind", other.do(t, other.mutation(name, n)))
		// Take a snapshot between the write and the call of Since.
		snap, err := pager.SelectAt(t.Context(), record.SelectRequest{Tokens: tokens(k), Select: []record.Selector{k.sel(name), k.sel("a")}})
		want := 2
		if n%3 == 0 {
			want = 1
		}
		if err != nil || len(snap.Records) != want {
			t.Errorf("selected %v, %v", snap.Records, err)
		}
		batch := since(pos)
		if !slices.ContainsFunc(batch.Changes, func(c record.Change) bool { return c.Kind == k.spec.Name && c.Key == record.StringKey(name) }) {
			t.Errorf("%s is not among what changed: %v", name, batch.Changes)
		}
		if slices.ContainsFunc(batch.Changes, func(c record.Change) bool { return c.Kind != k.spec.Name }) {
			t.Errorf("changes of another kind: %v", batch.Changes)
		}
		if batch.Pos.At.Compare(snap.Version) < 0 {
			t.Errorf("the place %v is before a snapshot at %v that was read before", batch.Pos.At, snap.Version)
		}
		pos = batch.Pos
	}
	// A cancelled call must not pretend that nothing changed.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pager.Since(gone, kinds, pos); err == nil {
		t.Error("since: a cancelled call succeeded")
	}
	const many = 2500 // more than one server reply holds
	var names []string
	for i := range many {
		names = append(names, fmt.Sprintf("many%04d", i))
	}
	k.put(t, names...)
	seen := map[record.Key]bool{}
	for _, c := range since(pos).Changes {
		seen[c.Key] = true
	}
	for _, name := range names {
		if !seen[record.StringKey(name)] {
			t.Fatalf("%s is not among %d changes", name, len(seen))
		}
	}
}
