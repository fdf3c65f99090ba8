package coordtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/coord"
)

func getAndList(b *bundle) {
	b.absent("a/x")
	first := b.put("a/x", "1")
	second := b.put("a/x", "2")
	third := b.put("a/b", "3")
	if first >= second || second >= third {
		b.Fatalf("revisions %d, %d, %d do not grow", first, second, third)
	}
	kv := b.get("a/x")
	if kv.Key != "a/x" || string(kv.Value) != "2" || kv.Create != first || kv.Mod != second || kv.Lease != 0 {
		b.Fatalf("Get = %+v, want 2 created at %d, modified at %d", kv, first, second)
	}
	kvs, rev := b.list("a/")
	if len(kvs) != 2 || kvs[0].Key != "a/b" || kvs[1].Key != "a/x" || rev < third {
		b.Fatalf("List = %+v at %d, want a/b and a/x, in order, at %d or later", kvs, rev, third)
	}
	for _, page := range []struct {
		prefix, after string
		limit         int
		want          string
	}{
		{"a/", "", 5, "a/b=3 a/x=2"},
		{"a/", "", 1, "a/b=3"},
		{"a/", "a/b", 1, "a/x=2"},
		{"a/", "a/c", 5, "a/x=2"}, // a key that does not exist
		{"a/", "a/x", 5, ""},
		{"a/", "b", 5, ""},
		{"a/x", "a/b", 5, "a/x=2"},
		{"none/", "", 5, ""},
	} {
		kvs, err := b.ListPage(b.ctx, page.prefix, page.after, page.limit)
		if err != nil {
			b.Fatalf("ListPage(%+v): %v", page, err)
		}
		var got []string
		for _, kv := range kvs {
			got = append(got, kv.Key+"="+string(kv.Value))
		}
		if strings.Join(got, " ") != page.want {
			b.Errorf("ListPage(%+v) = %q", page, got)
		}
	}
	b.delete("a/x")
	b.absent("a/x")
	if kvs, _ := b.list("a/"); len(kvs) != 1 {
		b.Fatalf("List after the deletion = %+v", kvs)
	}
	// An empty value is a value.
	empty := b.put("a/empty", "")
	if kv := b.get("a/empty"); len(kv.Value) != 0 || kv.Mod != empty {
		b.Fatalf("Get of an empty value = %+v", kv)
	}
}

func prefixEdges(b *bundle) {
	for _, key := range []string{"p", "p/", "p/a", "p/a/b", "p0", "p\xff", "p\xff\xff/x", "pa", "q", "P/a", "p."} {
		b.put(key, key)
	}
	// Prefixes are byte prefixes, also at the end of the byte range.
	for prefix, want := range map[string][]string{
		"p/":    {"p/", "p/a", "p/a/b"},
		"p":     {"p", "p.", "p/", "p/a", "p/a/b", "p0", "pa", "p\xff", "p\xff\xff/x"},
		"p\xff": {"p\xff", "p\xff\xff/x"},
		"p/a":   {"p/a", "p/a/b"},
		"p/b":   nil,
		"":      {"P/a", "p", "p.", "p/", "p/a", "p/a/b", "p0", "pa", "p\xff", "p\xff\xff/x", "q"},
	} {
		kvs, _ := b.list(prefix)
		var got []string
		for _, kv := range kvs {
			if string(kv.Value) != kv.Key {
				b.Errorf("%q has the value of %q", kv.Key, kv.Value)
			}
			got = append(got, kv.Key)
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			b.Errorf("List(%q) = %q, want %q", prefix, got, want)
		}
	}
}

func valuesAreCopied(b *bundle) {
	value := []byte("abc")
	b.commit(nil, coord.Op{Key: "k", Value: value})
	// Neither the caller's slice nor a returned one may share memory with the store.
	value[0] = 'X'
	kv := b.get("k")
	kv.Value[1] = 'X'
	if got := b.get("k"); string(got.Value) != "abc" {
		b.Fatalf("value is %q: it shares memory with a caller", got.Value)
	}
}

func commitConditions(b *bundle) {
	rev := b.commit(mod("k", 0), putOp("k", "1"))
	b.refuse(coord.ErrConflict, mod("k", 0), putOp("k", "2"))
	b.refuse(coord.ErrConflict, created("k", 0), putOp("k", "2"))
	b.refuse(coord.ErrConflict, mod("k", rev-1), putOp("k", "2"))
	b.refuse(coord.ErrConflict, mod("k", rev+1), putOp("k", "2"))
	b.refuse(coord.ErrConflict, mod("absent", rev), putOp("k", "2"))
	b.refuse(coord.ErrConflict, created("absent", rev), putOp("k", "2"))
	// Conditions on keys that are not written, several on one key, and on absence.
	b.commit([]coord.Condition{
		{Key: "k", Revision: rev}, {Key: "k", Create: true, Revision: rev}, {Key: "absent"}, {Key: "absent", Create: true},
	}, putOp("other", "1"))
	b.refuse(coord.ErrConflict, []coord.Condition{{Key: "k", Revision: rev}, {Key: "other"}}, putOp("k", "2"))
	// The value as well as the revision.
	is := func(revision int64, value string) []coord.Condition {
		return []coord.Condition{{Key: "k", Revision: revision, Value: []byte(value)}}
	}
	b.refuse(coord.ErrConflict, is(rev, "2"), putOp("k", "3"))
	b.refuse(coord.ErrConflict, is(rev, ""), putOp("k", "3"))
	b.refuse(coord.ErrConflict, is(rev+1, "1"), putOp("k", "3"))
	b.refuse(coord.ErrConflict, []coord.Condition{{Key: "absent", Value: []byte("1")}}, putOp("k", "3"))
	b.commit(is(rev, "1"), putOp("other", "2"))
	// A conditional deletion.
	b.refuse(coord.ErrConflict, mod("k", rev+100), coord.Op{Key: "k", Delete: true})
	b.commit(mod("k", rev), coord.Op{Key: "k", Delete: true})
	b.absent("k")
}

func createOrMod(b *bundle) {
	create := b.put("k", "1")
	last := b.put("k", "2")
	b.refuse(coord.ErrConflict, mod("k", create), putOp("x", ""))
	b.refuse(coord.ErrConflict, created("k", last), putOp("x", ""))
	b.commit(mod("k", last), putOp("x", ""))
	b.commit(created("k", create), putOp("x", ""))
	b.put("k", "3")
	b.refuse(coord.ErrConflict, mod("k", last), putOp("x", ""))
	b.commit(created("k", create), putOp("x", "")) // a rewrite keeps Create
}

func recreate(b *bundle) {
	first := b.put("k", "1")
	b.delete("k")
	b.refuse(coord.ErrConflict, created("k", first), putOp("x", ""))
	b.commit(created("k", 0), putOp("x", ""))
	second := b.put("k", "1")
	if kv := b.get("k"); kv.Create != second || kv.Create <= first || kv.Mod != second {
		b.Fatalf("recreated key is %+v, want created at %d", kv, second)
	}
	b.refuse(coord.ErrConflict, created("k", first), putOp("x", ""))
	b.commit(created("k", second), putOp("x", ""))
}

// conflictBringsTheFirstKey: of several conditions, the first one's key is in the error, also where
// another one failed.
func conflictBringsTheFirstKey(b *bundle) {
	first, second := b.put("k", "1"), b.put("k/other", "2")
	for _, c := range []struct {
		conditions []coord.Condition
		want       coord.KV
	}{
		{mod("k", first+1), coord.KV{Key: "k", Value: []byte("1"), Create: first, Mod: first}},
		{append(mod("k", first), mod("k/other", first)...), coord.KV{Key: "k", Value: []byte("1"), Create: first, Mod: first}},
		{append(mod("k/other", second), mod("k", second)...), coord.KV{Key: "k/other", Value: []byte("2"), Create: second, Mod: second}},
		{mod("absent", first), coord.KV{Key: "absent"}},
	} {
		_, err := b.Commit(b.ctx, c.conditions, []coord.Op{putOp("k", "3")})
		var conflict *coord.ConflictError
		if !errors.As(err, &conflict) || fmt.Sprint(conflict.First) != fmt.Sprint(c.want) {
			b.Errorf("Commit(%v) = %v with %+v, want %+v", c.conditions, err, conflict, c.want)
		}
	}
	if kv := b.get("k"); string(kv.Value) != "1" {
		b.Errorf("a conflict wrote %q", kv.Value)
	}
}

func conflictLeavesNothing(b *bundle) {
	rev := b.put("k", "1")
	b.put("gone", "1")
	before, _ := b.list("")
	// A watch must not see any part of the refused commit.
	w := b.watch("")
	b.refuse(coord.ErrConflict, []coord.Condition{{Key: "k", Revision: rev}, {Key: "k", Revision: rev + 1}},
		putOp("k", "2"), putOp("new", "2"), coord.Op{Key: "gone", Delete: true})
	after, _ := b.list("")
	if fmt.Sprint(before) != fmt.Sprint(after) {
		b.Fatalf("a conflict changed %v into %v", before, after)
	}
	b.put("end", "")
	if events := b.next(w, 1); events[0].KV.Key != "end" {
		b.Fatalf("a conflict was seen by a watch: %+v", events)
	}
}

func commitIsOneRevision(b *bundle) {
	b.put("old", "1")
	w := b.watch("")
	rev := b.commit(nil, putOp("a", "1"), putOp("b", "2"), coord.Op{Key: "old", Delete: true})
	// All three changes must have the revision of the commit.
	if a, c := b.get("a"), b.get("b"); a.Mod != rev || c.Mod != rev || a.Create != rev {
		b.Fatalf("keys %+v and %+v of the commit at %d", a, c, rev)
	}
	events, err := w.Next(b.ctx)
	if err != nil || len(events) != 3 {
		b.Fatalf("Next = %+v, %v, want the three changes together", events, err)
	}
	for _, e := range events {
		if e.KV.Mod != rev || e.Deleted != (e.KV.Key == "old") {
			b.Errorf("event %+v of the commit at %d", e, rev)
		}
	}
}

func commitWithoutEffect(b *bundle) {
	rev := b.put("k", "1")
	// A commit without operations only checks its conditions.
	b.commit(mod("k", rev))
	b.refuse(coord.ErrConflict, mod("k", rev+1))
	w := b.watch("")
	if _, err := b.Commit(b.ctx, nil, []coord.Op{{Key: "absent", Delete: true}}); err != nil {
		b.Fatalf("deleting an absent key: %v", err)
	}
	same := b.put("k", "1") // writing the same value again is an effect
	if events := b.next(w, 1); events[0].KV.Key != "k" || events[0].KV.Mod != same {
		b.Fatalf("events %+v, want the put only", events)
	}
}

func commitLimits(b *bundle) {
	ops := func(n int) []coord.Op {
		var ops []coord.Op
		for i := range n {
			ops = append(ops, putOp(fmt.Sprintf("k/%03d", i), ""))
		}
		return ops
	}
	// The limit itself is allowed, one more is not.
	b.commit(nil, ops(coord.MaxOps)...)
	b.commit(mod("absent", 0), ops(coord.MaxOps-1)...)
	// All stores must refuse these in advance, with a known outcome.
	for name, ops := range map[string][]coord.Op{
		"too many operations": ops(coord.MaxOps + 1),
		"a key twice":         {putOp("new", "1"), putOp("new", "2")},
		"a key put, deleted":  {putOp("new", "1"), {Key: "new", Delete: true}},
		"an empty key":        {putOp("new", "1"), putOp("", "2")},
		"too large":           {{Key: "new", Value: make([]byte, coord.MaxBytes)}},
	} {
		_, err := b.Commit(b.ctx, nil, ops)
		if err == nil || errors.Is(err, coord.ErrUnknown) || errors.Is(err, coord.ErrConflict) {
			b.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if _, err := b.Commit(b.ctx, mod("absent", 0), ops(coord.MaxOps)); err == nil {
		b.Error("conditions do not count among the operations")
	}
	b.absent("new")
	large := bytes.Repeat([]byte("x"), coord.MaxBytes-10)
	b.commit(nil, coord.Op{Key: "large", Value: large})
	if kv := b.get("large"); !bytes.Equal(kv.Value, large) {
		b.Errorf("a value of %d bytes came back with %d", len(large), len(kv.Value))
	}
}

func commitWithContextOver(b *bundle) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.Commit(ctx, nil, []coord.Op{putOp("k", "1")}); !errors.Is(err, context.Canceled) {
		b.Errorf("Commit = %v, want context.Canceled", err)
	}
	if _, err := b.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
		b.Errorf("Get = %v, want context.Canceled", err)
	}
	b.absent("k")
}

func concurrentIncrements(b *bundle) {
	const workers, each = 8, 15
	b.put("n", "0")
	g, ctx := errgroup.WithContext(b.ctx)
	for range workers {
		g.Go(func() error {
			// A conflict means that another worker was faster, so read and try again.
			for done := 0; done < each; {
				kv, err := b.Get(ctx, "n")
				if err != nil {
					return err
				}
				n, err := strconv.Atoi(string(kv.Value))
				if err != nil {
					return err
				}
				_, err = b.Commit(ctx, mod("n", kv.Mod), []coord.Op{putOp("n", strconv.Itoa(n+1))})
				switch {
				case err == nil:
					done++
				case !errors.Is(err, coord.ErrConflict):
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	if got := string(b.get("n").Value); got != strconv.Itoa(workers*each) {
		b.Fatalf("%d increments made %s", workers*each, got)
	}
}
