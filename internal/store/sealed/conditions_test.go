package sealed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// counted counts the reads of a client.
type counted struct {
	record.OnceClient
	reads int
}

func (c *counted) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	c.reads++
	return c.OnceClient.Get(ctx, tok, key)
}

func (c *counted) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	c.reads++
	return c.OnceClient.Select(ctx, req)
}

// TestManyConditions: a write with many conditions, such as a delete with all that refers to it, reads
// many records at once. Each condition holds or fails as if it were alone.
func TestManyConditions(t *testing.T) {
	t.Parallel()
	const records = 350
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	var ms []record.Mutation
	for i := range records {
		id := fmt.Sprintf("u%03d", i)
		was := w.put(id, bson.E{Key: "n", Value: int32(i)})
		ms = append(ms, record.Mutation{Kind: "users", Key: record.StringKey(id), Doc: docOf(t, id, bson.E{Key: "n", Value: int32(-i)}), Match: record.MatchDoc(was)})
	}
	below := &counted{OnceClient: w.store}
	write := func(ms []record.Mutation) error {
		return sealed.New("v1", fixedKeys(w.keys), w.notes).Client(below).Write(t.Context(), record.Tokens{"users": w.tok}, ms)
	}
	for name, tc := range map[string]struct {
		key  record.Key
		was  bson.Raw
		want error
	}{
		"another state": {record.StringKey("u200"), docOf(t, "u200"), record.ErrMismatch},
		"no record":     {record.StringKey("u999"), docOf(t, "u999"), record.ErrNotFound},
	} {
		wrong := append([]record.Mutation{}, ms...)
		wrong[200] = record.Mutation{Kind: "users", Key: tc.key, Match: record.MatchDoc(tc.was)}
		if err := write(wrong); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	below.reads = 0
	w.check(write(ms))
	if below.reads > records/20 {
		t.Errorf("%d conditions take %d reads", records, below.reads)
	}
	for i := range records {
		doc, err := w.get(fmt.Sprintf("u%03d", i))
		if n, _ := doc.Lookup("n").AsInt64OK(); err != nil || n != -int64(i) {
			t.Fatalf("u%03d is %v, %v", i, doc, err)
		}
	}
	// A record that is too large to be read with others is read alone.
	large := docOf(t, "u000", bson.E{Key: "text", Value: string(make([]byte, 9<<20))})
	w.check(write([]record.Mutation{{Kind: "users", Key: record.StringKey("u000"), Doc: large}}))
	w.check(write([]record.Mutation{
		{Kind: "users", Key: record.StringKey("u000"), Doc: docOf(t, "u000"), Match: record.MatchDoc(large)},
		{Kind: "users", Key: record.StringKey("u001"), Match: record.MatchDoc(docOf(t, "u001", bson.E{Key: "n", Value: int32(-1)}))},
	}))
}
