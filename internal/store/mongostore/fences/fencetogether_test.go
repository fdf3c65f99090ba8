package fences_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestFencesSetTogether: what is done for many fences by a few commands is what each does by
// itself. Those that have ended are not set, gates that a driver who died has left are used,
// and what one of them fails at is not the others'.
func TestFencesSetTogether(t *testing.T) {
	b := storetest.NewBench(t)
	fs := make([]record.Fence, 2*fences.AtOnce+3)
	for i := range fs {
		tok := b.Fixed(t, fmt.Sprintf("orders%d", i))
		fs[i] = record.Fence{Class: record.FenceView, Token: tok, To: tok.Name + ".n1"}
	}
	ended, taken := fs[:2], fs[2]
	for _, f := range ended {
		if err := b.Unfence(t.Context(), f); err != nil { // before it was ever set
			t.Fatal(err)
		}
	}
	if _, err := b.Raw.Collection(taken.To).InsertOne(t.Context(), bson.D{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range fs[5:9] {
		open := func(ctx context.Context) error { return b.OpenGate(ctx, f) }
		if err := b.UntilDone(t.Context(), "", open); err != nil { // a busy server gives up waiting for its locks
			t.Fatal(err)
		}
	}
	hold := make(chan struct{})
	set := b.PassRounds().Do
	b.PassRounds().Do = func(ctx context.Context, fs []record.Fence) (struct{}, error) {
		<-hold // so that the others come together
		return set(ctx, fs)
	}
	errs := make([]error, len(fs))
	var g errgroup.Group
	for i, f := range fs {
		g.Go(func() error { errs[i] = b.Fence(t.Context(), f); return nil })
	}
	storetest.WaitFor(t, func() bool {
		asked := b.PassRounds().Waiting()
		return len(asked) == 2 && asked[0] == fences.AtOnce
	})
	close(hold)
	_ = g.Wait()
	for i, f := range fs {
		refused := i < 3
		if (errs[i] != nil) != refused {
			t.Fatalf("fence %d: %v", i, errs[i])
		}
		_, err := b.Raw.Collection(f.Token.Name).InsertOne(t.Context(), bson.D{})
		if stopped := conn.HasCode(err, conn.CodeViewWrite); stopped == refused {
			t.Fatalf("insert %d: %v", i, err)
		}
		if gate, err := b.CollectionNamed(t.Context(), fences.GateOf(f.To)); err != nil || gate != nil {
			t.Fatalf("fence %d: gate %v is left, %v", i, gate, err)
		}
	}
}

// TestFenceBesideOneThatFails: of the fences that one command sets one finds no gate. The
// command ends there; the others are set nevertheless.
func TestFenceBesideOneThatFails(t *testing.T) {
	b := storetest.NewBench(t)
	var fs []record.Fence
	for i := range 5 {
		tok := b.Fixed(t, fmt.Sprintf("orders%d", i))
		fs = append(fs, record.Fence{Class: record.FenceView, Token: tok, To: tok.Name + ".n1"})
	}
	set, once := b.PassRounds().Do, sync.Once{}
	b.PassRounds().Do = func(ctx context.Context, asked []record.Fence) (struct{}, error) {
		var err error
		once.Do(func() {
			err = b.UntilDone(ctx, "", func(ctx context.Context) error { return b.CloseFence(ctx, fs[2].Token.Name, fs[2].To) })
		})
		if err != nil {
			return struct{}{}, err
		}
		return set(ctx, fs) // late ones among them: all at once
	}
	for i, f := range fs {
		err := b.Fence(t.Context(), f)
		if ended := i == 2; ended != errors.Is(err, conn.ErrUnfenced) || !ended && err != nil {
			t.Fatalf("fence %d: %v", i, err)
		}
	}
}
