package mongostore

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
)

// TestExpectedFences: what is made for many fences at once is what each makes by itself, and
// those that have ended do not get what would let them pass.
func TestExpectedFences(t *testing.T) {
	b := newBench(t)
	fs := make([]record.Fence, gatesAtOnce+3)
	for i := range fs {
		tok := b.fixed(t, fmt.Sprintf("orders%d", i))
		fs[i] = record.Fence{Class: record.FenceView, Token: tok, To: tok.Name + ".n1"}
	}
	for _, f := range fs[:2] {
		if err := b.Unfence(t.Context(), f); err != nil { // before it was ever set
			t.Fatal(err)
		}
	}
	for range 2 { // a driver that takes over says so again
		if err := b.Expect(t.Context(), fs); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range fs {
		gate, err := b.collectionNamed(t.Context(), gateOf(f.To))
		if err != nil || (gate != nil) != (i >= 2) {
			t.Fatalf("fence %d: gate %v, %v", i, gate, err)
		}
	}
	var g errgroup.Group
	for _, f := range fs[2:] {
		g.Go(func() error { return b.Fence(t.Context(), f) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, f := range fs {
		_, err := b.raw.Collection(f.Token.Name).InsertOne(t.Context(), bson.D{})
		if stopped := hasCode(err, codeViewWrite); stopped != (i >= 2) {
			t.Fatalf("insert %d: %v", i, err)
		}
		if gate, err := b.collectionNamed(t.Context(), gateOf(f.To)); err != nil || gate != nil {
			t.Fatalf("fence %d: gate %v is left, %v", i, gate, err)
		}
	}
}
