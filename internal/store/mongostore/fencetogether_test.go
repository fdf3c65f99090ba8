package mongostore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// TestFencesSetTogether: what is done for many fences by a few commands is what each does by
// itself. Those that have ended are not set, gates that a driver who died has left are used,
// and what one of them fails at is not the others'.
func TestFencesSetTogether(t *testing.T) {
	b := newBench(t)
	fs := make([]record.Fence, 2*atOnce+3)
	for i := range fs {
		tok := b.fixed(t, fmt.Sprintf("orders%d", i))
		fs[i] = record.Fence{Class: record.FenceView, Token: tok, To: tok.Name + ".n1"}
	}
	ended, taken := fs[:2], fs[2]
	for _, f := range ended {
		if err := b.Unfence(t.Context(), f); err != nil { // before it was ever set
			t.Fatal(err)
		}
	}
	if _, err := b.raw.Collection(taken.To).InsertOne(t.Context(), bson.D{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range fs[5:9] {
		open := func(ctx context.Context) error { return b.openGate(ctx, f) }
		if err := b.untilDone(t.Context(), "", open); err != nil { // a busy server gives up waiting for its locks
			t.Fatal(err)
		}
	}
	hold := make(chan struct{})
	set := b.PassRounds().do
	b.PassRounds().do = func(ctx context.Context, fs []record.Fence) (struct{}, error) {
		<-hold // so that the others come together
		return set(ctx, fs)
	}
	errs := make([]error, len(fs))
	var g errgroup.Group
	for i, f := range fs {
		g.Go(func() error { errs[i] = b.Fence(t.Context(), f); return nil })
	}
	waitFor(t, func() bool {
		asked := b.PassRounds().Waiting()
		return len(asked) == 2 && asked[0] == atOnce
	})
	close(hold)
	_ = g.Wait()
	for i, f := range fs {
		refused := i < 3
		if (errs[i] != nil) != refused {
			t.Fatalf("fence %d: %v", i, errs[i])
		}
		_, err := b.raw.Collection(f.Token.Name).InsertOne(t.Context(), bson.D{})
		if stopped := hasCode(err, codeViewWrite); stopped == refused {
			t.Fatalf("insert %d: %v", i, err)
		}
		if gate, err := b.collectionNamed(t.Context(), gateOf(f.To)); err != nil || gate != nil {
			t.Fatalf("fence %d: gate %v is left, %v", i, gate, err)
		}
	}
}

// TestFenceBesideOneThatFails: of the fences that one command sets one finds no gate. The
// command ends there; the others are set nevertheless.
func TestFenceBesideOneThatFails(t *testing.T) {
	b := newBench(t)
	var fs []record.Fence
	for i := range 5 {
		tok := b.fixed(t, fmt.Sprintf("orders%d", i))
		fs = append(fs, record.Fence{Class: record.FenceView, Token: tok, To: tok.Name + ".n1"})
	}
	set, once := b.PassRounds().do, sync.Once{}
	b.PassRounds().do = func(ctx context.Context, asked []record.Fence) (struct{}, error) {
		var err error
		once.Do(func() {
			err = b.untilDone(ctx, "", func(ctx context.Context) error { return b.closeFence(ctx, fs[2].Token.Name, fs[2].To) })
		})
		if err != nil {
			return struct{}{}, err
		}
		return set(ctx, fs) // late ones among them: all at once
	}
	for i, f := range fs {
		err := b.Fence(t.Context(), f)
		if ended := i == 2; ended != errors.Is(err, errUnfenced) || !ended && err != nil {
			t.Fatalf("fence %d: %v", i, err)
		}
	}
}
