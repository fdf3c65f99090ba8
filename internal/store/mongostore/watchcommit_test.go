package mongostore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/record"
)

// transaction inserts n records with ids of so many bytes, all at one time.
func transaction(e *engine, tok record.Token, prefix string, n, size int) {
	e.t.Helper()
	session, err := e.ns.client.StartSession()
	if err != nil {
		e.t.Fatal(err)
	}
	defer session.EndSession(e.t.Context())
	docs := make([]any, n)
	for i := range docs {
		id := fmt.Sprintf("%s%05d", prefix, i)
		docs[i] = bson.D{{Key: "_id", Value: id + strings.Repeat("x", size-len(id))}}
	}
	// A server that is slow to make room in its cache rolls one back, and the driver leaves it at that.
	waitFor(e.t, func() bool {
		_, err = session.WithTransaction(e.t.Context(), func(ctx context.Context) (any, error) {
			return e.coll(tok).InsertMany(ctx, docs)
		})
		return !hasCode(err, codeTemporarilyUnavailable)
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestWatchLargeCommits: a reply of the server that ends within a transaction because it has
// no room for more does not end the batch, and a transaction of more than a batch may hold
// comes in parts, none of them missing.
func TestWatchLargeCommits(t *testing.T) {
	t.Parallel()
	// What others do on the server has no part in what fits its cache. In one of 256 MB the transaction
	// of 9 MB is refused as too large, if the disk is slow.
	e := &engine{t: t, ns: benchAt(t, start(t, localmongo.Options{Own: true, CacheGB: 1}).URI(), "app").Namespace}
	tok := e.managed("m")
	const (
		size = 10_000
		most = 8 << 20 // of the stream that the test reads
	)
	writes := map[string]int{"a": 10, "b": 700, "c": most/size + 100}
	s := e.watch(e.position(), record.KindSpec{Name: "m"})
	SetMost(s, most)
	for _, prefix := range []string{"a", "b", "c"} {
		transaction(e, tok, prefix, writes[prefix], size)
	}
	e.insert(tok, bson.D{{Key: "_id", Value: "end"}})
	seen := map[record.Key]bool{}
	for batch := 0; !seen[record.StringKey("end")]; batch++ {
		b, err := s.Next(e.ctx())
		if err != nil {
			t.Fatal(err)
		}
		parts, held := map[string]int{}, 0
		for _, c := range b.Changes {
			if seen[c.Key] {
				t.Fatalf("%.10s came twice", c.Key)
			}
			seen[c.Key] = true
			parts[c.Key.String()[:1]]++
			held += c.Size()
		}
		t.Logf("batch %d: %d changes, %d bytes, %v", batch, len(b.Changes), held, parts)
		for _, whole := range []string{"a", "b"} {
			if n := parts[whole]; n != 0 && n != writes[whole] {
				t.Errorf("batch %d ends within transaction %s: it has %d of its %d changes", batch, whole, n, writes[whole])
			}
		}
		if held > most+2*size {
			t.Errorf("a batch of %d bytes", held)
		}
	}
	if want := writes["a"] + writes["b"] + writes["c"] + 1; len(seen) != want {
		t.Errorf("%d changes, want %d", len(seen), want)
	}
}
