package recordtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var changesTests = []test{
	{"managed kinds", withClient(changesManaged)},
	{"fixed-name kinds", withApp(changesFixed)},
	{"transactions", withClient(changesTransaction)},
	{"only the kinds asked for", withClient(changesKinds)},
	{"resume from every position", withClient(changesResume)},
	{"positions are ordered", withClient(changesPositions)},
	{"idle streams advance", withClient(changesIdle)},
	{"streams of a quiet database answer", withClient(changesQuiet)},
	{"across fences, with markers", withClient(changesMarkers)},
	{"many writers, none missing", withClient(changesMany)},
	{"wait ends with its context", flavours(changesCancel)},
	{"next after cancel does not advance", withClient(changesAfterCancel)},
	{"history lost", withClient(changesLost)},
	{"drop breaks the stream", flavours(changesDrop)},
	{"of a target, with origins", flavours(changesTarget)},
	{"of a target that somebody else writes", withApp(changesForeign)},
	{"a nudge", flavours(changesNudge)},
}

func changesManaged(t *testing.T, b *bench) {
	k := b.managed(t)
	k.write(t, "before", 1)
	s := b.follow(t, b.now(t), k)
	k.write(t, "a", 1)
	k.write(t, "b", 1)
	k.write(t, "a", 2)
	k.write(t, "a", -1)
	k.write(t, "b", 2)
	k.write(t, "a", 3)
	k.write(t, "absent", -1) // no change
	k.write(t, "end", 1)
	cs, _ := next(t, s, reached(k, "end"))
	want := []string{"+a", "+b", "+a", "-a", "+b", "+a", "+end"}
	if have := show(nil, cs); !slices.Equal(have, want) {
		t.Errorf("changes %v, want %v", have, want)
	}
	for _, c := range cs {
		if c.Kind != k.spec.Name {
			t.Errorf("change of kind %q", c.Kind)
		}
	}
}

func changesFixed(t *testing.T, b *bench) {
	k := b.fixed(t)
	s := b.follow(t, b.now(t), k)
	// Insert ids of every type that the kind accepts.
	ids := k.types()
	var want []string
	for _, id := range ids {
		d := raw(bson.D{{Key: "_id", Value: id}})
		if err := b.App.Insert(t.Context(), k.tok.Name, d); err != nil {
			t.Fatal(err)
		}
		key, err := record.KeyOfDoc(d)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "+"+key.String())
	}
	// A delete must have the key of the stored id, even with another number type.
	gone := []any{"a", 7.0} // 7.0 deletes the int64 7
	if b.TextKeys {
		gone = []any{"a", "7"}
	}
	for _, id := range gone {
		key, err := record.KeyOf(valueOf(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.App.Delete(t.Context(), k.tok.Name, valueOf(id)); err != nil {
			t.Fatal(err)
		}
		want = append(want, "-"+key.String())
	}
	if err := b.App.Put(t.Context(), k.tok.Name, doc("end", 1)); err != nil {
		t.Fatal(err)
	}
	cs, _ := next(t, s, reached(k, "end"))
	if have := show(nil, cs); !slices.Equal(have, append(want, "+end")) {
		t.Errorf("changes %v, want %v", have, want)
	}
}

func changesTransaction(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	s := b.follow(t, b.now(t), k, l)
	ms := []record.Mutation{k.mutation("a", 1), l.mutation("a", 1), k.mutation("b", 1), l.mutation("c", 1)}
	if err := b.Client.Write(t.Context(), tokens(k, l), ms); err != nil {
		t.Fatal(err)
	}
	// A second transaction changes two of the records again.
	ms = []record.Mutation{k.mutation("a", -1), l.mutation("a", 2)}
	if err := b.Client.Write(t.Context(), tokens(k, l), ms); err != nil {
		t.Fatal(err)
	}
	k.write(t, "end", 1)
	cs, _ := next(t, s, reached(k, "end"))
	have := show(map[string]string{k.spec.Name: "k", l.spec.Name: "l"}, cs)
	if len(have) != 7 {
		t.Fatalf("changes %v, want 7", have)
	}
	// The order within a transaction is free, but transactions must not mix.
	first, second := slices.Sorted(slices.Values(have[:4])), slices.Sorted(slices.Values(have[4:6]))
	if !slices.Equal(first, []string{"+ka", "+kb", "+la", "+lc"}) || !slices.Equal(second, []string{"+la", "-ka"}) {
		t.Errorf("changes %v", have)
	}
}

// commitTests are about large transactions.
var commitTests = []test{{"batches end with commits", withClient(changesCommits)}}

// changesCommits commits large transactions one after another during a stream. Another stream
// begins after all of them. No batch may hold a part of a transaction.
func changesCommits(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	start := b.now(t)
	s := b.follow(t, start, k, l)
	// More changes than a server's reply or a batch holds, and counts that do not divide these
	// limits.
	sizes := []int{3, 400, 2600, 2, 1999, 1, 300}
	if b.SeveralLogs {
		// Batches may split transactions here, and large ones take half a minute while chunks move.
		sizes = []int{3, 400, 2, 1, 300}
	}
	name := func(txn, i int) string { return fmt.Sprintf("%c%d-%04d", 'a'+i%26, txn, i) } // spread over all shards, if any
	want := map[record.Key]int{}                                                          // transaction of each key
	var txns [][]record.Mutation
	for txn, n := range sizes {
		var ms []record.Mutation
		for i := range n {
			of := k
			if i%3 == 2 {
				of = l
			}
			ms = append(ms, of.mutation(name(txn, i), i))
			want[record.StringKey(name(txn, i))] = txn
		}
		txns = append(txns, ms)
	}
	txns = append(txns, []record.Mutation{k.mutation("end", 1)})
	g, ctx := together(t)
	g.Go(func() error {
		for i, ms := range txns {
			// A migration of a chunk ends transactions, too. Then nothing was written.
			err := b.Client.Write(ctx, tokens(k, l), ms)
			for err != nil && !errors.Is(err, record.ErrUnknown) && ctx.Err() == nil {
				t.Logf("transaction %d of %d records: %v", i, len(ms), err)
				err = b.Client.Write(ctx, tokens(k, l), ms)
			}
			if err != nil {
				t.Errorf("transaction %d of %d records: %v", i, len(ms), err) // the reader would wait for it in vain
				return err
			}
		}
		return nil
	})
	check := func(when string, s record.Stream) {
		t.Helper()
		all, batches := next(t, s, reached(k, "end"))
		if seen := distinct(all); len(seen) != len(want)+1 {
			t.Errorf("%s: %d records changed, want %d", when, len(seen), len(want)+1)
		}
		for i, batch := range batches {
			parts := map[int]int{}
			for c := range distinct(batch.Changes) {
				if txn, ok := want[c.Key]; ok {
					parts[txn]++
				}
			}
			for txn, n := range parts {
				if n != sizes[txn] && !b.SeveralLogs {
					t.Errorf("%s: batch %d of %d ends within a transaction: it has %d of its %d changes", when, i, len(batches), n, sizes[txn])
				}
			}
		}
	}
	check("as they come", s)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	check("all at once", b.follow(t, start, k, l))
}

func changesKinds(t *testing.T, b *bench) {
	k, l, m := b.managed(t), b.managed(t), b.managed(t)
	s := b.follow(t, b.now(t), k, m)
	l.write(t, "a", 1)
	k.write(t, "a", 1)
	l.write(t, "a", 2)
	m.write(t, "a", 1)
	l.write(t, "a", -1)
	k.write(t, "end", 1)
	cs, _ := next(t, s, reached(k, "end"))
	have := show(map[string]string{k.spec.Name: "k", l.spec.Name: "l", m.spec.Name: "m"}, cs)
	if want := []string{"+ka", "+ma", "+kend"}; !slices.Equal(have, want) {
		t.Errorf("changes %v, want %v", have, want)
	}
}

func changesMarkers(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	s := b.follow(t, b.now(t), k, l)
	k.write(t, "a", 1)
	l.write(t, "a", 1)
	// The markers must keep their place among the writes of both kinds.
	k.fence(t)
	k.write(t, "b", 1)
	l.write(t, "b", 1)
	l.fence(t)
	k.fence(t)
	k.write(t, "c", 1)
	l.write(t, "c", -1)
	l.write(t, "end", 1)
	cs, _ := next(t, s, reached(l, "end"))
	have := show(map[string]string{k.spec.Name: "k", l.spec.Name: "l"}, cs)
	want := []string{
		"+ka", "+la", "=k" + record.PhysicalName(k.spec.Name, 1), "+kb", "+lb",
		"=l" + record.PhysicalName(l.spec.Name, 1), "=k" + record.PhysicalName(k.spec.Name, 2), "+kc", "+lend",
	}
	if !slices.Equal(have, want) {
		t.Errorf("changes %v, want %v", have, want)
	}
	// Also from a position after earlier fences.
	again := b.follow(t, b.now(t), k)
	k.write(t, "d", 1)
	k.fence(t)
	if cs, _ := next(t, again, marked(k, k.tok.Name)); !slices.Equal(show(nil, cs), []string{"+d", "=" + k.tok.Name}) {
		t.Errorf("changes %v", show(nil, cs))
	}
}

func changesMany(t *testing.T, b *bench) {
	k := b.managed(t)
	s := b.follow(t, b.now(t), k)
	const writers, each = 4, 25
	g, ctx := together(t)
	for w := range writers {
		g.Go(func() error {
			for i := range each {
				// The keys are numbered, since a later write must come later.
				m := k.mutation(fmt.Sprintf("w%d-%03d", w, i), i)
				if err := b.Client.Write(ctx, tokens(k), []record.Mutation{m}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	k.write(t, "end", 1)
	cs, _ := next(t, s, reached(k, "end"))
	// The order between writers is free, but each writer's own order is not.
	var order [writers][]string
	for _, name := range show(nil, cs) {
		if name != "+end" {
			w := int(name[2] - '0')
			order[w] = append(order[w], name)
		}
	}
	for w, names := range order {
		if len(names) != each || !slices.IsSorted(names) {
			t.Errorf("writer %d: changes %v", w, names)
		}
	}
}
