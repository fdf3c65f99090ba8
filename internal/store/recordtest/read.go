package recordtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

var readTests = []test{
	{"selected and absent", flavours(readSelected)},
	{"tombstones only with guards", flavours(readGuards)},
	{"prefix", flavours(readPrefix)},
	{"many keys", flavours(readMany)},
	{"keys only", flavours(readKeysOnly)},
	{"not before", flavours(readNotBefore)},
	{"no more bytes than asked", flavours(readBytes)},
	{"one snapshot across kinds", flavours(readOneSnapshot)},
	{"equal numbers are one key", withApp(readNumbers)},
}

// read reads at a snapshot that shows all earlier acknowledged writes.
func (b *bench) read(t *testing.T, req record.ReadRequest) record.Snapshot {
	t.Helper()
	if req.NotBefore.IsZero() {
		req.NotBefore = b.now(t).At
	}
	snap, err := b.Namespace.Read(t.Context(), req)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if snap.Version.Compare(req.NotBefore) < 0 {
		t.Errorf("snapshot %s, not before %s", snap.Version, req.NotBefore)
	}
	type place struct {
		kind string
		key  record.Key
	}
	// Selectors may overlap, but a record may occur only once.
	seen := map[place]bool{}
	for _, r := range snap.Records {
		p := place{r.Kind, r.Key}
		if seen[p] {
			t.Errorf("%s %s is twice in a snapshot", r.Kind, r.Key)
		}
		seen[p] = true
	}
	return snap
}

func (k *kind) sel(name string) record.Selector {
	return record.Selector{Kind: k.spec.Name, Key: record.StringKey(name)}
}

func readSelected(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	k.put(t, "a", "b", "c")
	l.put(t, "b", "d")
	snap := b.read(t, record.ReadRequest{
		Tokens: tokens(k, l),
		// A record selected twice must be returned once.
		Select: []record.Selector{k.sel("a"), k.sel("b"), k.sel("x"), l.sel("b"), l.sel("a"), k.sel("a")},
	})
	var have []string
	for _, r := range snap.Records {
		have = append(have, fmt.Sprint(r.Kind, ":", r.Key))
		if id, _ := record.KeyOfDoc(r.Doc); id != r.Key {
			t.Errorf("key %s, document %s", r.Key, r.Doc)
		}
	}
	slices.Sort(have)
	want := []string{k.spec.Name + ":a", k.spec.Name + ":b", l.spec.Name + ":b"}
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("read %v, want %v", have, want)
	}
}

func readGuards(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 2, group(4, k.set("live", 1)), group(5, k.set("dead", -1)))
	sel := []record.Selector{k.sel("live"), k.sel("dead"), k.sel("absent")}
	have := map[string]record.Record{}
	for _, r := range b.read(t, record.ReadRequest{Tokens: tokens(k), Select: sel, Guards: true}).Records {
		have[r.Key.String()] = r
	}
	if r := have["live"]; r.Guard != guard(2, 4) || r.Tombstone || !bytes.Equal(r.Doc, doc("live", 1)) {
		t.Errorf("live: %+v", r)
	}
	if r := have["dead"]; r.Guard != guard(2, 5) || !r.Tombstone || r.Doc != nil {
		t.Errorf("dead: %+v", r)
	}
	// A backend may return an absent record, but without content.
	if r, ok := have["absent"]; ok && (r.Doc != nil || r.Tombstone || !r.Guard.IsZero()) {
		t.Errorf("absent: %+v", r)
	}
	plain := b.read(t, record.ReadRequest{Tokens: tokens(k), Select: sel}).Records
	if len(plain) != 1 || plain[0].Key != record.StringKey("live") || plain[0].Tombstone {
		t.Errorf("read without guards returned %+v", plain)
	}
}

// readKeysOnly checks that a KeysOnly read returns no content and no deleted records.
func readKeysOnly(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	b.apply(t, tokens(k), 2, group(4, k.set("live", 1)), group(5, k.set("dead", -1)), group(6, k.set("longer", 2)))
	sel := []record.Selector{
		k.sel("live"), k.sel("dead"), k.sel("absent"),
		{Kind: k.spec.Name, Key: record.StringKey("lo"), Prefix: true},
	}
	have := map[string]record.Record{}
	for _, r := range b.read(t, record.ReadRequest{Tokens: tokens(k), Select: sel, KeysOnly: true}).Records {
		have[r.Key.String()] = r
	}
	if !slices.Equal(sortedKeys(have), []string{"live", "longer"}) {
		t.Errorf("%v, want the live records", sortedKeys(have))
	}
	// Content and guards must be absent.
	for name, r := range have {
		if want := raw(bson.D{{Key: "_id", Value: name}}); !bytes.Equal(r.Doc, want) || !r.Guard.IsZero() || r.Tombstone {
			t.Errorf("%s: %+v, want %s alone", name, r, want)
		}
	}
	for _, r := range b.read(t, record.ReadRequest{Tokens: tokens(k), Select: sel, KeysOnly: true, Guards: true}).Records {
		want := map[string]record.Guard{"live": guard(2, 4), "dead": guard(2, 5), "longer": guard(2, 6)}[r.Key.String()]
		if r.Guard != want || r.Tombstone != (r.Key == record.StringKey("dead")) {
			t.Errorf("with guards: %+v, want guard %v", r, want)
		}
	}
}

func readPrefix(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, awkward...)
	for _, prefix := range []string{"", "a", "a.", "a/b", "a*", "a\\", "(", "$", "日", "none", "a\uffff"} {
		snap := b.read(t, record.ReadRequest{Tokens: tokens(k), Select: []record.Selector{
			{Kind: k.spec.Name, Key: record.StringKey(prefix), Prefix: true},
			k.sel("a"), // also covered by some of the prefixes
		}})
		// The record a is always selected by name.
		want := map[string]bool{"a": true}
		for _, name := range awkward {
			if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
				want[name] = true
			}
		}
		have := map[string]bool{}
		for _, r := range snap.Records {
			name, _ := r.Key.Name()
			have[name] = true
		}
		if !slices.Equal(sortedKeys(have), sortedKeys(want)) {
			t.Errorf("prefix %q: %q, want %q", prefix, sortedKeys(have), sortedKeys(want))
		}
	}
}

func readMany(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	var names []string
	var sel []record.Selector
	for i := range 500 {
		names = append(names, fmt.Sprintf("n%04d", i))
		sel = append(sel, k.sel(names[i]), k.sel(names[i]+"-absent"))
	}
	k.put(t, names...)
	if n := len(b.read(t, record.ReadRequest{Tokens: tokens(k), Select: sel}).Records); n != len(names) {
		t.Errorf("%d records, want %d", n, len(names))
	}
}

// readBytes checks the limit on the bytes of a read. A caller does not know the size of the records
// that it selects.
func readBytes(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	const each = 100 << 10
	var sel []record.Selector
	for _, name := range []string{"a", "b", "c", "d"} {
		w := k.set(name, 1)
		w.Doc = filled(name, 1, each)
		b.apply(t, tokens(k), 1, group(1, w))
		sel = append(sel, k.sel(name))
	}
	req := record.ReadRequest{Tokens: tokens(k), Select: sel, NotBefore: b.now(t).At}
	// The limit must stop a read that is too large, and no other.
	for bytes, fits := range map[int]bool{0: true, 5 * each: true, 3 * each: false, each / 2: false} {
		req.Bytes = bytes
		snap, err := b.Namespace.Read(t.Context(), req)
		if fits && (err != nil || len(snap.Records) != len(sel)) {
			t.Errorf("%d bytes: %d records, %v", bytes, len(snap.Records), err)
		}
		if !fits && !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}

// readNotBefore reads at the position of a hint, like the engine. A read not before it must show
// the change, from any process and connection.
func readNotBefore(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	reader := b.Namespace
	if b.Reopen != nil {
		reader = b.Reopen()
	}
	for v := 1; v <= 10; v++ {
		n := v
		// Deletes must be visible, too.
		if v%3 == 0 {
			n = -1
		}
		b.apply(t, tokens(k), 1, group(v, k.set("a", n)))
		pos := b.now(t)
		snap, err := reader.Read(t.Context(), record.ReadRequest{Tokens: tokens(k), Select: []record.Selector{k.sel("a")}, NotBefore: pos.At})
		if err != nil {
			t.Fatal(err)
		}
		if snap.Version.Compare(pos.At) < 0 {
			t.Errorf("snapshot %s, not before %s", snap.Version, pos.At)
		}
		switch {
		case n < 0 && len(snap.Records) != 0:
			t.Errorf("state %d: deleted, but read", v)
		case n >= 0 && (len(snap.Records) != 1 || number(t, snap.Records[0].Doc) != n):
			t.Errorf("state %d is not visible: %v", v, snap.Records)
		}
	}
}

// readOneSnapshot writes the same number everywhere in each commit, so a snapshot must show one
// number. Equal versions must show equal numbers.
func readOneSnapshot(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k, l := mk(t), mk(t)
	state := func(n int) record.GroupWrite {
		return group(n, k.set("a", n), l.set("a", n), k.set("z", n), l.set("b/x", n))
	}
	b.apply(t, tokens(k, l), 1, state(1))
	ctx, cancel := context.WithCancel(bounded(t))
	var writer errgroup.Group
	writer.Go(func() error {
		for n := 2; ctx.Err() == nil; n++ {
			// Finish a begun write even after the test has cancelled the loop.
			batch := record.Batch{Tokens: tokens(k, l), Epoch: 1, Groups: []record.GroupWrite{state(n)}}
			if _, err := b.Namespace.Apply(context.WithoutCancel(ctx), batch); err != nil {
				return err
			}
		}
		return nil
	})
	// A version must always show the same state.
	numbers := map[record.Version]int{}
	last, moves := 0, 0
	// Read until the writer has made progress ten times, within limits.
	for i := 0; i < 300 && (i < 60 || moves < 10); i++ {
		snap := b.read(t, record.ReadRequest{Tokens: tokens(k, l), Select: []record.Selector{
			k.sel("a"), l.sel("a"), k.sel("z"), {Kind: l.spec.Name, Key: record.StringKey("b/"), Prefix: true},
		}})
		if len(snap.Records) != 4 {
			t.Fatalf("%d records, want 4", len(snap.Records))
		}
		n := number(t, snap.Records[0].Doc)
		for _, r := range snap.Records {
			if m := number(t, r.Doc); m != n {
				t.Errorf("a snapshot shows states %d and %d", n, m)
			}
		}
		if n < last {
			t.Errorf("state %d after %d", n, last)
		}
		if n > last {
			moves++
		}
		last = n
		if before, ok := numbers[snap.Version]; ok && before != n {
			t.Errorf("version %s shows state %d and %d", snap.Version, before, n)
		}
		numbers[snap.Version] = n
	}
	cancel()
	if err := writer.Wait(); err != nil {
		t.Errorf("apply: %v", err)
	}
}

func readNumbers(t *testing.T, b *bench) {
	if b.TextKeys {
		t.Log("left out: the backend has only texts as an _id")
		return
	}
	k := b.fixed(t)
	// One id is a double, and the other has an int32 inside a document.
	stored := raw(bson.D{{Key: "_id", Value: 5.0}})
	nested := raw(bson.D{{Key: "_id", Value: bson.D{{Key: "x", Value: int32(5)}}}})
	for _, d := range []bson.Raw{stored, nested} {
		if err := b.App.Insert(t.Context(), k.tok.Name, d); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []any{int32(5), int64(5), 5.0} {
		key, err := record.KeyOf(valueOf(id))
		if err != nil {
			t.Fatal(err)
		}
		// The number inside a document must match as well.
		inner, err := record.KeyOf(valueOf(bson.D{{Key: "x", Value: id}}))
		if err != nil {
			t.Fatal(err)
		}
		snap := b.read(t, record.ReadRequest{Tokens: tokens(k), Select: []record.Selector{{Kind: k.spec.Name, Key: key}, {Kind: k.spec.Name, Key: inner}}})
		if len(snap.Records) != 2 {
			t.Fatalf("%T 5: %d records, want 2", id, len(snap.Records))
		}
		for _, r := range snap.Records {
			switch {
			case r.Key == key && bytes.Equal(r.Doc, stored), r.Key == inner && bytes.Equal(r.Doc, nested):
			default:
				t.Errorf("%T 5: record %s with %s", id, r.Key, r.Doc)
			}
		}
	}
}
