package vrunner

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/record"
)

// lateWatcher opens streams that deliver what the test sends, also to a Next whose context ends
// meanwhile.
type lateWatcher struct {
	record.Watcher
	opened chan *lateStream
}

type lateStream struct {
	from    record.Position
	kinds   []string
	waits   chan struct{} // has an item for each call of Next
	batches chan record.ChangeBatch
}

func (w *lateWatcher) Position(context.Context) (record.Position, error) { return placed(1), nil }

func placed(n byte) record.Position {
	return record.Position{At: record.Version{n}, Token: []byte{n}}
}

func (w *lateWatcher) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	s := &lateStream{from: from, waits: make(chan struct{}, 16), batches: make(chan record.ChangeBatch)}
	for _, k := range kinds {
		s.kinds = append(s.kinds, k.Name)
	}
	select {
	case w.opened <- s:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Next returns a batch that was on its way, as a database does that has sent it already.
func (s *lateStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	s.waits <- struct{}{}
	select {
	case b := <-s.batches:
		return b, nil
	case <-ctx.Done():
	}
	b, ok := <-s.batches
	if !ok {
		return b, ctx.Err()
	}
	return b, nil
}

func (s *lateStream) Close(context.Context) error { return nil }

// TestFirstOfItsKindMissesNothing: the stream of the other kinds goes on for a moment, and drops the
// changes of a new subscriber's kind. They still arrive.
func TestFirstOfItsKindMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &lateWatcher{opened: make(chan *lateStream)}
		h := newHub("v1", w, slog.New(slog.DiscardHandler))
		ended := make(chan error, 2)
		go func() { ended <- h.run(ctx) }()
		go func() { ended <- h.admit(ctx) }()
		subscribe := func(kind string) <-chan *subscription {
			joined := make(chan *subscription, 1)
			go func() {
				c, err := h.subscribe(ctx, []string{kind})
				if err != nil {
					t.Error(err)
				}
				joined <- c
			}()
			synctest.Wait()
			return joined
		}
		a := subscribe("a")
		old := <-w.opened
		<-a
		<-old.waits
		b := subscribe("b")
		select {
		case <-b:
			t.Error("a subscriber has joined before a stream has its kind")
		default:
		}
		// The old stream has got to position 2, past a change of kind b.
		old.batches <- record.ChangeBatch{Pos: placed(2)}
		next := <-w.opened
		if !slices.Equal(next.kinds, []string{"a", "b"}) || next.from.At != placed(1).At {
			t.Errorf("the next stream has %v from %v, want a and b from the first position", next.kinds, next.from.At)
		}
		second := <-b
		next.batches <- record.ChangeBatch{Pos: placed(2), Changes: []record.Change{{Kind: "b", Key: record.StringKey("x")}}}
		if names, err := second.Next(ctx); err != nil || len(names) != 1 || names[0].Name != "x" {
			t.Errorf("the change: %v, %v", names, err)
		}
		cancel()
		close(next.batches)
		<-ended
		<-ended
	})
}
