package recordtest

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var swapTests = []test{
	{"as it was", flavours(swapAsItWas)},
	{"byte for byte", flavours(swapBytes)},
	{"any id", flavours(swapIDs)},
	{"refusals", flavours(swapRefused)},
	{"during writes", flavours(swapBeside)},
	{"fenced", swapFenced},
}

func (k *kind) swap(t *testing.T, swaps ...record.Swap) []record.Result {
	t.Helper()
	res, err := k.b.Namespace.Swap(t.Context(), k.tok, swaps)
	if err != nil {
		t.Fatalf("swap: %v", err)
	}
	checkResults(t, res, len(swaps))
	return res
}

func swapOf(name string, was, doc bson.Raw) record.Swap {
	return record.Swap{Key: record.StringKey(name), Was: was, Doc: doc}
}

// swapAsItWas checks that Swap replaces only unchanged records. It leaves the same guard as a
// client's write: none in a managed kind, and the present one in a fixed-name kind, where it lies
// next to the document.
func swapAsItWas(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	for _, n := range []string{"same", "other"} {
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(1, k.set(n, 1))), record.Applied)
	}
	wantOutcomes(t, b.apply(t, tokens(k), 1, group(1, k.set("dead", -1))), record.Applied)
	wantOutcomes(t, k.swap(t, swapOf("same", doc("same", 1), doc("same", 2)), swapOf("other", doc("other", 7), doc("other", 2)),
		swapOf("dead", doc("dead", 1), doc("dead", 2)), swapOf("absent", doc("absent", 1), doc("absent", 2))),
		record.Applied, record.Changed, record.Changed, record.Changed)
	// A fixed-name kind keeps its guard next to the document.
	after := record.Guard{}
	if k.spec.Fixed {
		after = guard(1, 1)
	}
	k.wantState(t, map[string]record.Record{
		"same": at("same", 2, after), "other": at("other", 1, guard(1, 1)), "dead": at("dead", -1, guard(1, 1)),
	})
	// The earlier swap changed the document, so the old image must fail.
	wantOutcomes(t, k.swap(t, swapOf("same", doc("same", 1), doc("same", 3))), record.Changed)
	if res := k.swap(t); len(res) != 0 {
		t.Errorf("results of no swaps: %v", res)
	}
}

// swapBytes checks that Swap compares bytes: documents that a database regards as equal may still
// differ.
func swapBytes(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	full := func(v any, more ...bson.E) bson.Raw {
		return raw(append(bson.D{{Key: "_id", Value: "a"}, {Key: "v", Value: v}, {Key: "w", Value: bson.A{v}}}, more...))
	}
	// The same fields in another order are another document.
	turned := raw(bson.D{{Key: "_id", Value: "a"}, {Key: "w", Value: bson.A{int32(1)}}, {Key: "v", Value: int32(1)}})
	for i, tc := range []struct{ holds, was bson.Raw }{
		{full(int32(1)), full(int64(1))},
		{full(1.0), full(int32(1))},
		{full(math.Copysign(0, -1)), full(0.0)},
		{full(int32(1)), turned},
		{full(nil), full(bson.Undefined{})},
		{full("a"), full(bson.Symbol("a"))},
		{full(int32(1), bson.E{Key: "x", Value: nil}), full(int32(1))},
	} {
		w := record.Write{Kind: k.spec.Name, Key: record.StringKey("a"), Doc: tc.holds}
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(2*i+1, w)), record.Applied)
		if r := k.swap(t, swapOf("a", tc.was, full("new")))[0]; r.Outcome != record.Changed {
			t.Errorf("%s was taken for %s: %s", tc.holds, tc.was, r.Outcome)
		}
		// NaN and the zero timestamp are special to databases, but must swap like other values.
		wantOutcomes(t, k.swap(t, swapOf("a", tc.holds, full(math.NaN()))), record.Applied)
		wantOutcomes(t, k.swap(t, swapOf("a", full(math.NaN()), full(bson.Timestamp{}))), record.Applied)
		wantOutcomes(t, k.swap(t, swapOf("a", full(bson.Timestamp{}), full("end"))), record.Applied)
	}
}

func swapIDs(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	var swaps []record.Swap
	want := map[record.Key]string{}
	for _, id := range k.types() {
		// Ids of every type must survive a swap.
		was, next := raw(bson.D{{Key: "_id", Value: id}}), raw(bson.D{{Key: "_id", Value: id}, {Key: "filled", Value: true}})
		key, err := record.KeyOfDoc(was)
		if err != nil {
			t.Fatal(err)
		}
		w := record.Write{Kind: k.spec.Name, Key: key, Doc: was}
		wantOutcomes(t, b.apply(t, tokens(k), 1, record.GroupWrite{Group: key.String(), Version: version(1), Writes: []record.Write{w}}), record.Applied)
		swaps = append(swaps, record.Swap{Key: key, Was: was, Doc: next})
		want[key] = string(next)
	}
	for i, r := range k.swap(t, swaps...) {
		if r.Outcome != record.Applied {
			t.Errorf("%s: %s (%v)", swaps[i].Key, r.Outcome, r.Err)
		}
	}
	for key, r := range k.all(t) {
		if string(r.Doc) != want[key] {
			t.Errorf("%s holds %s", key, r.Doc)
		}
	}
}

// swapRefused checks that a refused swap is reported and that the others are still made.
func swapRefused(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t, uniqueShape(b)...)
	var swaps []record.Swap
	for _, name := range []string{"a", "b", "c", "d"} {
		w := k.mail(name, name+"@x")
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(1, w)), record.Applied)
		swaps = append(swaps, swapOf(name, w.Doc, k.mail(name, name+"@y").Doc))
	}
	swaps[1].Doc = k.mail("z", "b@y").Doc // another _id
	want := []record.Outcome{record.Applied, record.Refused, record.Applied, record.Applied}
	if !b.NoIndexes {
		swaps[2].Doc = k.mail("c", "d@x").Doc // taken, until d has another value
		swaps[2], swaps[3] = swaps[3], swaps[2]
		swaps[2].Doc = k.mail("d", "a@y").Doc // taken by a, a moment ago
		want = []record.Outcome{record.Applied, record.Refused, record.Refused, record.Refused}
	}
	wantOutcomes(t, k.swap(t, swaps...), want...)
	// A refused swap must leave its record as it was.
	have := k.all(t)
	for i, s := range swaps {
		holds := s.Was
		if want[i] == record.Applied {
			holds = s.Doc
		}
		if r := have[s.Key]; string(r.Doc) != string(holds) {
			t.Errorf("%s holds %s, want %s", s.Key, r.Doc, holds)
		}
	}
}

// rest is a writer that pauses until a round of swaps, which began later, reports on its record.
type rest struct {
	name string
	told chan<- rested
}

type rested struct {
	n       int // the last write that the round found
	applied bool
}

// swapBeside checks that concurrent swaps lose no acknowledged writes. A record with continuous
// writes can always be ahead of its swap. So writers pause in turn, while the others go on.
// Afterwards each finds its record at its last write, and swapped.
func swapBeside(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	const records, writes, every = 5, 60, 20
	g, ctx := together(t)
	rests := make(chan rest, records)
	var writers atomic.Int64
	for i := range records {
		name := fmt.Sprint("r", i)
		wantOutcomes(t, b.apply(t, tokens(k), 1, group(1, k.set(name, 0))), record.Applied)
		writers.Add(1)
		g.Go(func() error {
			defer writers.Add(-1)
			for n := 1; n <= writes; n++ {
				if err := k.replace(ctx, name, n); err != nil {
					return fmt.Errorf("write %d of %s: %w", n, name, err)
				}
				if n%every != i*every/records && n < writes {
					continue
				}
				// Wait for a round that began after this write.
				told := make(chan rested, 1)
				rests <- rest{name, told}
				select {
				case r := <-told:
					if r.n != n || !r.applied {
						return fmt.Errorf("%s rests at write %d, and a round found %d and swapped it: %t", name, n, r.n, r.applied)
					}
				case <-ctx.Done():
					return fmt.Errorf("%s waits for a round: %w", name, ctx.Err())
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for i := 0; writers.Load() > 0; i++ {
			// Collect the resting writers before the scan, so that the round sees their last
			// writes.
			var resting []rest
			for range len(rests) {
				resting = append(resting, <-rests)
			}
			found, err := k.swapAll(ctx, i)
			if err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
			for _, r := range resting {
				r.told <- found[r.name]
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	all := k.all(t)
	for i := range records {
		name := fmt.Sprint("r", i)
		if n := number(t, all[record.StringKey(name)].Doc); n != writes {
			t.Errorf("%s is at write %d of %d", name, n, writes)
		}
	}
}

// swapAll reads all present records and swaps each for a document with one more field.
func (k *kind) swapAll(ctx context.Context, round int) (map[string]rested, error) {
	now, err := k.b.Namespace.Position(ctx)
	if err != nil {
		return nil, err
	}
	page, err := k.b.Namespace.Scan(ctx, record.ScanRequest{Token: k.tok, NotBefore: now.At})
	if err != nil {
		return nil, err
	}
	var swaps []record.Swap
	for _, r := range page.Records {
		var d bson.D
		if err := bson.Unmarshal(r.Doc, &d); err != nil {
			return nil, err
		}
		swaps = append(swaps, record.Swap{Key: r.Key, Was: r.Doc, Doc: raw(append(d, bson.E{Key: fmt.Sprint("f", round), Value: int32(round)}))})
	}
	results, err := k.b.Namespace.Swap(ctx, k.tok, swaps)
	if err != nil {
		return nil, err
	}
	found := map[string]rested{}
	for i, r := range results {
		// A writer may be faster than the swap. Any other outcome is a fault.
		if r.Outcome != record.Applied && r.Outcome != record.Changed {
			return nil, fmt.Errorf("%s: %w", r.Outcome, r.Err)
		}
		// Report the writer's state that this round has read.
		n, ok := swaps[i].Was.Lookup("n").AsInt64OK()
		if !ok {
			return nil, fmt.Errorf("%s holds no number", swaps[i].Was)
		}
		found[swaps[i].Key.String()] = rested{int(n), r.Outcome == record.Applied}
	}
	return found, nil
}

// replace writes a record like the kind's client or application.
func (k *kind) replace(ctx context.Context, name string, n int) error {
	if k.spec.Fixed {
		return k.b.App.Put(ctx, k.spec.Name, doc(name, n))
	}
	return k.b.Client.Write(ctx, tokens(k), []record.Mutation{{Kind: k.spec.Name, Key: record.StringKey(name), Doc: doc(name, n)}})
}

func swapFenced(t *testing.T, b *bench) {
	k := b.managed(t)
	k.put(t, "a")
	old := k.fence(t)
	_, err := b.Namespace.Swap(t.Context(), old, []record.Swap{swapOf("a", doc("a", 0), doc("a", 1))})
	wantError(t, "swap with an old token", err, record.ErrFenced)
	k.wantState(t, map[string]record.Record{"a": at("a", 0, guard(1, 1))})
	wantOutcomes(t, k.swap(t, swapOf("a", doc("a", 0), doc("a", 1))), record.Applied)
}
