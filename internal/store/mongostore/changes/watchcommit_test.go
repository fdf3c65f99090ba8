package changes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/changes"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// transaction inserts n records with ids of so many bytes, all at one time.
func transaction(e *storetest.Engine, tok record.Token, prefix string, n, size int) {
	e.T.Helper()
	session, err := e.NS.Mongo.StartSession()
	if err != nil {
		e.T.Fatal(err)
	}
	defer session.EndSession(e.T.Context())
	docs := make([]any, n)
	for i := range docs {
		id := fmt.Sprintf("%s%05d", prefix, i)
		docs[i] = bson.D{{Key: "_id", Value: id + strings.Repeat("x", size-len(id))}}
	}
	// A server that is slow to make room in its cache rolls one back, and the driver leaves it at that.
	storetest.WaitFor(e.T, func() bool {
		_, err = session.WithTransaction(e.T.Context(), func(ctx context.Context) (any, error) {
			return e.Coll(tok).InsertMany(ctx, docs)
		})
		return !conn.HasCode(err, conn.CodeTemporarilyUnavailable)
	})
	if err != nil {
		e.T.Fatal(err)
	}
}

// TestWatchLargeCommits: a reply of the server that ends within a transaction because it has
// no room for more does not end the batch, and a transaction of more than a batch may hold
// comes in parts, none of them missing.
func TestWatchLargeCommits(t *testing.T) {
	t.Parallel()
	// Other tests must not fill the cache of this server. In one of 256 MB the transaction
	// of 9 MB is refused as too large, if the disk is slow.
	e := &storetest.Engine{T: t, NS: storetest.BenchAt(t, storetest.Start(t, localmongo.Options{Own: true, CacheGB: 1}).URI(), "app").Namespace}
	tok := e.Managed("m")
	const (
		size = 10_000
		most = 8 << 20 // of the stream that the test reads
	)
	writes := map[string]int{"a": 10, "b": 700, "c": most/size + 100}
	s := e.Watch(e.Position(), record.KindSpec{Name: "m"})
	changes.SetMost(s, most)
	for _, prefix := range []string{"a", "b", "c"} {
		transaction(e, tok, prefix, writes[prefix], size)
	}
	e.Insert(tok, bson.D{{Key: "_id", Value: "end"}})
	seen := map[record.Key]bool{}
	for batch := 0; !seen[record.StringKey("end")]; batch++ {
		b, err := s.Next(e.Ctx())
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
