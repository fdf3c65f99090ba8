package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

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
	set := b.passes.do
	b.passes.do = func(ctx context.Context, fs []record.Fence) (struct{}, error) {
		<-hold // so that the others come together
		return set(ctx, fs)
	}
	errs := make([]error, len(fs))
	var g errgroup.Group
	for i, f := range fs {
		g.Go(func() error { errs[i] = b.Fence(t.Context(), f); return nil })
	}
	waitFor(t, func() bool {
		b.passes.mu.Lock()
		defer b.passes.mu.Unlock()
		return len(b.passes.waiting) == 2 && len(b.passes.waiting[0].asked) == atOnce
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
	set, once := b.passes.do, sync.Once{}
	b.passes.do = func(ctx context.Context, asked []record.Fence) (struct{}, error) {
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

// TestRounds: calls that come while one is under way share the next one, which begins after
// they came; a caller that leaves is not waited for, and no round is longer than it may be.
func TestRounds(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	begun, goOn := make(chan struct{}, 10), make(chan error)
	rs := rounds[int, int]{most: 3, do: func(ctx context.Context, asked []int) (int, error) {
		begun <- struct{}{}
		err := <-goOn
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(asked))
		return asked[0], err
	}}
	var g errgroup.Group
	answers := make([]int, 6)
	ask := func(i int) {
		g.Go(func() (err error) { answers[i], err = rs.ask(context.Background(), i); return err })
	}
	ask(0)
	<-begun
	for i := 1; i < 5; i++ {
		ask(i)
		waitFor(t, func() bool {
			rs.mu.Lock()
			defer rs.mu.Unlock()
			n := 0
			for _, r := range rs.waiting {
				n += len(r.asked)
			}
			return n == i
		})
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := rs.ask(gone, 5); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for range 3 {
		goOn <- nil
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 1, 1, 4, 0}; !slices.Equal(answers, want) || !slices.Equal(sizes, []int{1, 3, 2}) {
		t.Fatalf("answers %v in rounds of %v", answers, sizes)
	}
	failed := errors.New("no")
	ask(0)
	select {
	case goOn <- failed:
	case <-time.After(time.Minute):
		t.Fatal("no round was made after the last one had ended")
	}
	if err := g.Wait(); !errors.Is(err, failed) {
		t.Fatal(err)
	}
}
