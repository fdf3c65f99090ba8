package recordio_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestTransactionThatIsTooMuch: what a server has no room for at once is written by halves,
// and a group that cannot be written even alone is refused.
func TestTransactionThatIsTooMuch(t *testing.T) {
	t.Parallel()
	w := storetest.Unreliable(t)
	const kind = "k"
	tok, err := w.Provision(t.Context(), record.KindSpec{Name: kind, Fixed: true}, record.PhysicalName(kind, 1))
	if err != nil {
		t.Fatal(err)
	}
	batch := func(from, n int) record.Batch {
		b := record.Batch{Tokens: storetest.TokensOf(tok), Epoch: 1}
		for i := from; i < from+n; i++ {
			b.Groups = append(b.Groups, storetest.Group(1, storetest.Put(t, kind, bson.D{{Key: "_id", Value: fmt.Sprint(i)}})))
		}
		return b
	}
	code := func(code int) bson.E { return bson.E{Key: "errorCode", Value: code} }
	for at, step := range []struct {
		command string
		code    int
		groups  int
		want    record.Outcome
	}{
		{"commitTransaction", conn.CodeTooLargeForCache, 5, record.Applied},
		{"bulkWrite", conn.CodeTooLargeForCache, 5, record.Applied},
		{"commitTransaction", conn.CodeTransactionTooLarge, 5, record.Applied},
		{"commitTransaction", conn.CodeTransactionTooLarge, 1, record.Refused},
	} {
		w.Fail(t, step.command, code(step.code))
		results, err := w.Apply(t.Context(), batch(at*100, step.groups))
		if err != nil {
			t.Errorf("error %d of %s: %v", step.code, step.command, err)
		}
		for i, r := range results {
			if r.Outcome != step.want {
				t.Errorf("error %d of %s: group %d is %s, %v", step.code, step.command, i, r.Outcome, r.Err)
			}
		}
	}
}

// TestSplitAtShortKeys: what lies between two ranges is stored many times over, so that long
// names are no place for a cut.
func TestSplitAtShortKeys(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("k")
	var docs []any
	for i := range 2000 {
		name := fmt.Sprintf("%04d", i)
		if i%4 > 0 {
			name += strings.Repeat("x", 4*record.MaxCut)
		}
		docs = append(docs, bson.D{{Key: "_id", Value: name}})
	}
	e.Insert(tok, docs...)
	ranges, err := e.NS.Split(t.Context(), tok, 4)
	if err != nil || len(ranges) != 4 {
		t.Fatalf("%d ranges, %v", len(ranges), err)
	}
	for _, r := range ranges {
		if len(r.From) > record.MaxCut || len(r.To) > record.MaxCut {
			t.Errorf("a range from a name of %d bytes to one of %d", len(r.From), len(r.To))
		}
	}
}

// TestKeysOfOneFind: what one command asks for is bounded by bytes: a thousand keys of the
// greatest length are more than a message may have.
func TestKeysOfOneFind(t *testing.T) {
	t.Parallel()
	short, long := record.StringKey("short"), record.StringKey(strings.Repeat("x", record.MaxKey-6))
	var keys, got []record.Key
	for range recordio.KeysPerFind + 1 {
		keys = append(keys, long, short)
	}
	for chunk := range recordio.ChunkKeys(keys) {
		size := 0
		for _, k := range chunk {
			size += len(k)
		}
		if len(chunk) == 0 || len(chunk) > recordio.KeysPerFind || size > recordio.KeyBytesPerFind {
			t.Errorf("%d keys of %d bytes", len(chunk), size)
		}
		got = append(got, chunk...)
	}
	if !slices.Equal(got, keys) {
		t.Errorf("%d keys of %d, or in another order", len(got), len(keys))
	}
	if in := recordio.AppendIn(nil, keys[:recordio.KeysPerFind]); len(in) < 16<<20 {
		t.Errorf("%d bytes would have fitted", len(in))
	}
}
