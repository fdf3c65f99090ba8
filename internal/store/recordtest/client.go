package recordtest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var clientTests = []test{
	{"create", withClient(clientCreate)},
	{"exists", withClient(clientExists)},
	{"match", withClient(clientMatch)},
	{"match of a whole document", withClient(clientMatchDoc)},
	{"checks keep decisions true", withClient(clientChecks)},
	{"put and delete", withClient(clientPut)},
	{"documents byte for byte", withClient(clientBytes)},
	{"the reserved field", withClient(managedReserved)},
	{"list", withClient(clientList)},
	{"names", withClient(clientNames)},
	{"select", withClient(clientSelect)},
	{"select at one moment", withClient(clientSelectMoment)},
	{"select of so many bytes", withClient(clientSelectBytes)},
	{"reads as a list", withClient(clientAsList)},
	{"list with what belongs to it", withPager(pagerListWith)},
	{"list with what belongs to it at one moment", withPager(pagerMoment)},
	{"changes since a list", withPager(pagerSince)},
	{"list of so many bytes", withClient(clientListBytes)},
	{"by an index: one value", withIndexReader(indexEqual)},
	{"by an index: a range", withIndexReader(indexRange)},
	{"by an index: so many bytes", withIndexReader(indexBytes)},
	{"transaction", withClient(clientTransaction)},
	{"tombstones are invisible", withClient(clientTombstones)},
	{"unique index", withClient(clientUnique)},
	{"what is refused for good", withClient(clientRefused)},
	{"one creator wins", withClient(clientCreators)},
	{"compare-and-swap loses nothing", withClient(clientSwap)},
}

// do writes one mutation.
func (k *kind) do(t *testing.T, m record.Mutation) error {
	t.Helper()
	return k.b.Client.Write(t.Context(), tokens(k), []record.Mutation{m})
}

func (k *kind) get(t *testing.T, name string) (bson.Raw, error) {
	t.Helper()
	r, err := k.b.Client.Get(t.Context(), k.tok, record.StringKey(name))
	if err == nil && (r.Kind != k.spec.Name || r.Key != record.StringKey(name) || r.Tombstone) {
		t.Errorf("get of %s: %+v", name, r)
	}
	return r.Doc, err
}

// wantDoc checks the state n of a record. A negative n means that it must be absent.
func (k *kind) wantDoc(t *testing.T, name string, n int) {
	t.Helper()
	d, err := k.get(t, name)
	if n < 0 {
		wantError(t, "get of "+name, err, record.ErrNotFound)
		return
	}
	if err != nil || !bytes.Equal(d, doc(name, n)) {
		t.Errorf("%s holds %s, %v, want state %d", name, d, err, n)
	}
}

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func clientCreate(t *testing.T, b *bench) {
	k := b.managed(t)
	k.wantDoc(t, "a", -1)
	m := k.mutation("a", 1)
	m.Absent = true
	ok(t, "create", k.do(t, m))
	k.wantDoc(t, "a", 1)
	// A second create must leave the first record as it is.
	m.Doc = doc("a", 2)
	wantError(t, "create of what is there", k.do(t, m), record.ErrExists)
	k.wantDoc(t, "a", 1)
	ok(t, "delete", k.do(t, k.mutation("a", -1)))
	ok(t, "create again", k.do(t, m))
	k.wantDoc(t, "a", 2)
}

func clientExists(t *testing.T, b *bench) {
	k := b.managed(t)
	update, remove := k.mutation("a", 2), k.mutation("a", -1)
	update.Exists, remove.Exists = true, true
	wantError(t, "update of an absent record", k.do(t, update), record.ErrNotFound)
	wantError(t, "delete of an absent record", k.do(t, remove), record.ErrNotFound)
	k.wantDoc(t, "a", -1)
	ok(t, "put", k.do(t, k.mutation("a", 1)))
	ok(t, "update", k.do(t, update))
	ok(t, "update to the same", k.do(t, update))
	k.wantDoc(t, "a", 2)
	ok(t, "delete", k.do(t, remove))
	k.wantDoc(t, "a", -1)
	wantError(t, "second delete", k.do(t, remove), record.ErrNotFound)
}

func clientMatch(t *testing.T, b *bench) {
	k := b.managed(t)
	nested := func(rev any, n int32) bson.Raw {
		return raw(bson.D{{Key: "_id", Value: "a"}, {Key: "meta", Value: bson.D{{Key: "rev", Value: rev}}}, {Key: "n", Value: n}})
	}
	swap := func(d bson.Raw, path string, value any) record.Mutation {
		return record.Mutation{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: d, Match: &record.Match{Path: path, Value: valueOf(value)}}
	}
	// A failed condition must be told apart from an absent record.
	wantError(t, "match of an absent record", k.do(t, swap(nested(int64(1), 1), "meta.rev", int64(0))), record.ErrNotFound)
	ok(t, "put", k.do(t, record.Mutation{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: nested(int64(1), 1)}))
	wantError(t, "match of another value", k.do(t, swap(nested(int64(2), 2), "meta.rev", int64(7))), record.ErrMismatch)
	wantError(t, "match of another type", k.do(t, swap(nested(int64(2), 2), "meta.rev", "1")), record.ErrMismatch)
	wantError(t, "match of a missing field", k.do(t, swap(nested(int64(2), 2), "meta.none", int64(1))), record.ErrMismatch)
	// Numbers are equal by value, as in a database.
	ok(t, "match by an int32", k.do(t, swap(nested(int64(2), 2), "meta.rev", int32(1))))
	ok(t, "match by a double", k.do(t, swap(nested("three", 3), "meta.rev", 2.0)))
	ok(t, "match by a string", k.do(t, swap(nested(nil, 4), "meta.rev", "three")))
	d, err := k.get(t, "a")
	if err != nil || !bytes.Equal(d, nested(nil, 4)) {
		t.Errorf("after all: %s, %v", d, err)
	}
	wantError(t, "delete with another value", k.do(t, swap(nil, "n", int32(3))), record.ErrMismatch)
	ok(t, "delete with its value", k.do(t, swap(nil, "n", int32(4))))
	k.wantDoc(t, "a", -1)
}

func clientMatchDoc(t *testing.T, b *bench) {
	k := b.managed(t)
	full := func(n any, extra ...bson.E) bson.Raw {
		return raw(append(bson.D{{Key: "_id", Value: "a"}, {Key: "n", Value: n}, {Key: "sub", Value: bson.D{{Key: "$x.y", Value: bson.A{n, "$n"}}}}}, extra...))
	}
	swap := func(to, from bson.Raw) record.Mutation {
		return record.Mutation{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: to, Match: record.MatchDoc(from)}
	}
	wantError(t, "match of an absent record", k.do(t, swap(full(1), full(0))), record.ErrNotFound)
	// Apply leaves a guard, which is not part of the document.
	b.apply(t, tokens(k), 1, group(1, record.Write{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: full(int32(1))}))
	wantError(t, "another value", k.do(t, swap(full(2), full(int32(7)))), record.ErrMismatch)
	wantError(t, "a field more", k.do(t, swap(full(2), full(int32(1), bson.E{Key: "more", Value: nil}))), record.ErrMismatch)
	wantError(t, "another order", k.do(t, swap(full(2), raw(bson.D{{Key: "_id", Value: "a"}, {Key: "sub", Value: bson.D{}}, {Key: "n", Value: int32(1)}}))), record.ErrMismatch)
	wantError(t, "delete of another", k.do(t, swap(nil, full(int32(7)))), record.ErrMismatch)
	ok(t, "numbers by value", k.do(t, swap(full(int64(2)), full(int64(1)))))
	// A check may be repeated, because it changes nothing.
	ok(t, "a check", k.do(t, swap(full(int64(2)), full(int64(2)))))
	ok(t, "another check", k.do(t, swap(full(int64(2)), full(int64(2)))))
	wantError(t, "a check that fails", k.do(t, swap(full(int64(3)), full(int64(3)))), record.ErrMismatch)
	if d, err := k.get(t, "a"); err != nil || !bytes.Equal(d, full(int64(2))) {
		t.Errorf("after all: %s, %v", d, err)
	}
	ok(t, "delete", k.do(t, swap(nil, full(int64(2)))))
	k.wantDoc(t, "a", -1)
}

// clientChecks runs two writers, each of which checks the record that the other deletes. One of
// them must notice the delete.
func clientChecks(t *testing.T, b *bench) {
	k := b.managed(t)
	for round := range 10 {
		names := []string{fmt.Sprint("on", round), fmt.Sprint("off", round)}
		docs := map[string]bson.Raw{}
		for _, name := range names {
			ok(t, "put", k.do(t, k.mutation(name, 1))) // a client's write leaves no guard, so a check has nothing to remove
			d, err := k.get(t, name)
			ok(t, "get", err)
			docs[name] = d
		}
		var won atomic.Int32
		g, ctx := together(t)
		for w := range names {
			mine, theirs := names[w], names[1-w]
			g.Go(func() error {
				err := b.Client.Write(ctx, tokens(k), []record.Mutation{
					// Check the other record and delete the own one, in one transaction.
					{Kind: k.spec.Name, Key: record.StringKey(theirs), Doc: docs[theirs], Match: record.MatchDoc(docs[theirs])},
					{Kind: k.spec.Name, Key: record.StringKey(mine), Match: record.MatchDoc(docs[mine])},
				})
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, record.ErrNotFound) && !errors.Is(err, record.ErrMismatch):
					return err
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := won.Load(); n != 1 {
			t.Errorf("%d of two writers that exclude each other won", n)
		}
	}
}

func clientPut(t *testing.T, b *bench) {
	k := b.managed(t)
	ok(t, "put of new", k.do(t, k.mutation("a", 1)))
	ok(t, "put of known", k.do(t, k.mutation("a", 2)))
	ok(t, "same put", k.do(t, k.mutation("a", 2)))
	k.wantDoc(t, "a", 2)
	ok(t, "delete", k.do(t, k.mutation("a", -1)))
	ok(t, "delete of absent", k.do(t, k.mutation("a", -1)))
	k.wantDoc(t, "a", -1)
}

func clientBytes(t *testing.T, b *bench) {
	k := b.managed(t)
	docs := []bson.Raw{
		raw(bson.D{{Key: "_id", Value: "x"}, {Key: "z", Value: int32(1)}, {Key: "a", Value: int64(1)}, {Key: "", Value: nil}}),
		raw(bson.D{{Key: "_id", Value: "x"}}),
		raw(bson.D{{Key: "_id", Value: "x"}, {Key: "a.b", Value: bson.A{"$x", bson.D{{Key: "$set", Value: 1.5}}}}}),
	}
	for _, d := range docs {
		ok(t, "put", k.do(t, record.Mutation{Kind: k.spec.Name, Key: record.StringKey("x"), Doc: d}))
		if have, err := k.get(t, "x"); err != nil || !bytes.Equal(have, d) {
			t.Errorf("get: %s, %v, want %s", have, err, d)
		}
		list, err := b.Client.List(t.Context(), record.ListRequest{Token: k.tok})
		if err != nil || len(list) != 1 || !bytes.Equal(list[0].Doc, d) {
			t.Errorf("list: %v, %v, want %s", list, err, d)
		}
	}
}

func clientList(t *testing.T, b *bench) {
	k := b.managed(t)
	names := awkward[1:] // After is exclusive, and empty means the start
	k.put(t, names...)
	b.apply(t, tokens(k), 1, group(2, k.set("a/dead", -1)), group(2, k.set("aa", -1)))
	// Each prefix is read as a whole and in small pages.
	for _, prefix := range []string{"", "a", "a/", "(", "zz"} {
		var want []string
		for _, name := range names {
			// The tombstone of aa must not be listed.
			if name != "aa" && len(name) >= len(prefix) && name[:len(prefix)] == prefix {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		for _, limit := range []int{0, 1, 3} {
			var have []string
			for after := ""; ; after = have[len(have)-1] {
				page, err := b.Client.List(t.Context(), record.ListRequest{Token: k.tok, Prefix: prefix, After: after, Limit: limit})
				if err != nil {
					t.Fatalf("list: %v", err)
				}
				if limit > 0 && len(page) > limit {
					t.Errorf("a page of %d, limit %d", len(page), limit)
				}
				for _, r := range page {
					name, _ := r.Key.Name()
					have = append(have, name)
					if id, _ := record.KeyOfDoc(r.Doc); id != r.Key || r.Kind != k.spec.Name {
						t.Errorf("listed %+v", r)
					}
				}
				if len(page) == 0 || limit == 0 || len(have) > len(names) {
					break
				}
			}
			if !slices.Equal(have, want) {
				t.Errorf("prefix %q, limit %d: %q, want %q", prefix, limit, have, want)
			}
		}
	}
	page, err := b.Client.List(t.Context(), record.ListRequest{Token: k.tok, Prefix: "a", After: "b"})
	if err != nil || len(page) != 0 {
		t.Errorf("list after the prefix: %v, %v", page, err)
	}
}

func clientTransaction(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	both := func(ms ...record.Mutation) error { return b.Client.Write(t.Context(), tokens(k, l), ms) }
	ok(t, "transaction", both(k.mutation("a", 1), l.mutation("a", 1), k.mutation("b", 1)))
	create, update, remove := l.mutation("a", 2), k.mutation("none", 2), l.mutation("none", -1)
	create.Absent, update.Exists, remove.Exists = true, true, true
	mismatch := k.mutation("b", 2)
	mismatch.Match = &record.Match{Path: "n", Value: valueOf(int32(9))}
	for _, tt := range []struct {
		m    record.Mutation
		want error
	}{{create, record.ErrExists}, {update, record.ErrNotFound}, {remove, record.ErrNotFound}, {mismatch, record.ErrMismatch}} {
		// The failing mutation comes last in one transaction and first in the other.
		wantError(t, "transaction", both(k.mutation("a", 5), l.mutation("c", 5), tt.m), tt.want)
		wantError(t, "transaction", both(tt.m, k.mutation("a", -1), l.mutation("c", 5)), tt.want)
	}
	k.wantDoc(t, "a", 1)
	k.wantDoc(t, "b", 1)
	k.wantDoc(t, "none", -1)
	l.wantDoc(t, "a", 1)
	l.wantDoc(t, "c", -1)
	// After the failures, a transaction with puts and deletes must still work.
	ok(t, "transaction of all sorts", both(k.mutation("a", -1), k.mutation("b", 3), l.mutation("c", 3), l.mutation("none", -1)))
	k.wantDoc(t, "a", -1)
	k.wantDoc(t, "b", 3)
	l.wantDoc(t, "c", 3)
}

func clientTombstones(t *testing.T, b *bench) {
	k := b.managed(t)
	names := []string{"create", "put", "delete", "update", "remove", "txn"}
	for _, name := range names {
		b.apply(t, tokens(k), 1, group(1, k.set(name, -1)))
		k.wantDoc(t, name, -1)
	}
	list, err := b.Client.List(t.Context(), record.ListRequest{Token: k.tok})
	if err != nil || len(list) != 0 {
		t.Errorf("list of tombstones: %v, %v", list, err)
	}
	// A tombstone behaves like an absent record under every condition.
	create, update, remove, txn := k.mutation("create", 1), k.mutation("update", 1), k.mutation("remove", -1), k.mutation("txn", 1)
	create.Absent, update.Exists, remove.Exists, txn.Absent = true, true, true, true
	ok(t, "create over a tombstone", k.do(t, create))
	ok(t, "put over a tombstone", k.do(t, k.mutation("put", 1)))
	ok(t, "delete of a tombstone", k.do(t, k.mutation("delete", -1)))
	wantError(t, "update of a tombstone", k.do(t, update), record.ErrNotFound)
	wantError(t, "delete that needs a record", k.do(t, remove), record.ErrNotFound)
	matching := k.mutation("update", 1)
	matching.Match = &record.Match{Path: "n", Value: valueOf(int32(0))}
	wantError(t, "match of a tombstone", k.do(t, matching), record.ErrNotFound)
	other := k.mutation("other", 1)
	other.Absent = true
	ok(t, "creates in a transaction", b.Client.Write(t.Context(), tokens(k), []record.Mutation{txn, other}))
	for name, n := range map[string]int{"create": 1, "put": 1, "delete": -1, "update": -1, "remove": -1, "txn": 1, "other": 1} {
		k.wantDoc(t, name, n)
	}
	// The first create replaced the tombstone, so a second one must fail.
	create.Doc = doc("create", 2)
	wantError(t, "second create", k.do(t, create), record.ErrExists)
}

func clientUnique(t *testing.T, b *bench) {
	if b.NoIndexes {
		t.Log("left out: the backend has no unique indexes")
		return
	}
	k := b.managed(t, uniqueOn("mail"))
	mut := func(name, mail string) record.Mutation {
		w := k.mail(name, mail)
		return record.Mutation{Kind: w.Kind, Key: w.Key, Doc: w.Doc}
	}
	ok(t, "put", k.do(t, mut("a", "m@x")))
	// A refused create, put or transaction must leave nothing behind.
	create := mut("b", "m@x")
	create.Absent = true
	wantError(t, "create of a duplicate", k.do(t, create), record.ErrConflict)
	wantError(t, "put of a duplicate", k.do(t, mut("b", "m@x")), record.ErrConflict)
	ms := []record.Mutation{mut("c", "n@x"), mut("d", "m@x")}
	wantError(t, "transaction with a duplicate", b.Client.Write(t.Context(), tokens(k), ms), record.ErrConflict)
	k.wantDoc(t, "b", -1)
	k.wantDoc(t, "c", -1)
	ok(t, "put of its own value", k.do(t, mut("a", "m@x")))
}

// clientRefused checks that a permanent refusal is distinguishable, and that nothing of the call is
// written.
func clientRefused(t *testing.T, b *bench) {
	k, most := b.managed(t), cmp.Or(b.MaxDocument, 16<<20)
	mutation := func(name string, size int) record.Mutation {
		return record.Mutation{Kind: k.spec.Name, Key: record.StringKey(name), Doc: filled(name, 1, size)}
	}
	create, other, long := mutation("b", most), k.mutation("d", 1), k.mutation(strings.Repeat("l", record.MaxKey), 1)
	create.Absent, other.Key = true, record.StringKey("e")
	for what, tc := range map[string]struct {
		m    record.Mutation
		also error
	}{
		"a put that is too large":    {mutation("a", most), record.ErrOversize},
		"a create that is too large": {create, record.ErrOversize},
		"a document of another key":  {other, record.ErrRefused},
		"a key that is too long":     {long, record.ErrLongKey},
	} {
		for how, ms := range map[string][]record.Mutation{" alone": {tc.m}, " with another": {k.mutation("with", 1), tc.m}} {
			err := b.Client.Write(t.Context(), tokens(k), ms)
			wantError(t, what+how, err, record.ErrRefused)
			wantError(t, what+how, err, tc.also)
			// The caller must know that nothing was written.
			if errors.Is(err, record.ErrUnknown) {
				t.Errorf("%s%s: %v", what, how, err)
			}
		}
	}
	if once, is := b.Client.(record.OnceClient); is {
		m := mutation("a", most)
		_, err := once.CreateOnce(t.Context(), tokens(k), "large", []record.Record{{Kind: m.Kind, Key: m.Key, Doc: m.Doc}})
		wantError(t, "a first record that is too large", err, record.ErrOversize)
	}
	for _, name := range []string{"a", "b", "d", "e", "with"} {
		k.wantDoc(t, name, -1)
	}
	// A document and the one it is compared with may each fit, but not both together.
	was, now := mutation("f", most*3/5), mutation("f", most*3/5-1)
	ok(t, "a large record", k.do(t, was))
	now.Match = record.MatchDoc(was.Doc)
	if err := k.do(t, now); err != nil {
		wantError(t, "a large document and what it replaces", err, record.ErrOversize)
	}
}

func clientCreators(t *testing.T, b *bench) {
	k := b.managed(t)
	for round := range 5 {
		name := fmt.Sprint("r", round)
		// Half of the rounds create over a tombstone.
		if round%2 == 1 {
			b.apply(t, tokens(k), 1, group(1, k.set(name, -1)))
		}
		var won atomic.Int32
		g, ctx := together(t)
		for w := range 6 {
			g.Go(func() error {
				m := k.mutation(name, w)
				m.Absent = true
				err := b.Client.Write(ctx, tokens(k), []record.Mutation{m})
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, record.ErrExists):
					return err
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := won.Load(); n != 1 {
			t.Errorf("%d creators of %s won", n, name)
		}
	}
}

func clientSwap(t *testing.T, b *bench) {
	k := b.managed(t)
	ok(t, "put", k.do(t, k.mutation("counter", 0)))
	var swaps atomic.Int32
	g, ctx := together(t)
	for range 4 {
		g.Go(func() error {
			for range 12 {
				r, err := b.Client.Get(ctx, k.tok, record.StringKey("counter"))
				if err != nil {
					return err
				}
				// Write only if the counter still has the value read. A mismatch is no success.
				n := r.Doc.Lookup("n").Int32()
				m := k.mutation("counter", int(n)+1)
				m.Match = &record.Match{Path: "n", Value: valueOf(n)}
				err = b.Client.Write(ctx, tokens(k), []record.Mutation{m})
				switch {
				case err == nil:
					swaps.Add(1)
				case !errors.Is(err, record.ErrMismatch):
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	k.wantDoc(t, "counter", int(swaps.Load()))
}
