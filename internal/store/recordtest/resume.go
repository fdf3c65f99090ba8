package recordtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"dbcontroller.dev/record"
)

// This file has the tests of positions: resuming, waiting and the end of streams.

// changesResume checks that a stream opened at any position, from Position or from a batch,
// delivers exactly the changes after it.
func changesResume(t *testing.T, b *bench) {
	k := b.managed(t)
	names := func(i int) string { return fmt.Sprintf("r%02d", i) }
	const n = 12
	between := []record.Position{b.now(t)}
	s := b.follow(t, between[0], k)
	type place struct {
		pos  record.Position
		want int // first change after it
		// Delivery is at least once. After the position of a batch, the last changes of it may come
		// again. After a position from Position, none does.
		again bool
	}
	var places []place
	seen := 0
	for i := range n {
		if i%4 == 3 {
			// Several changes with one commit time.
			ms := []record.Mutation{k.mutation(names(i), i), k.mutation("x"+names(i), i)}
			if err := b.Client.Write(t.Context(), tokens(k), ms); err != nil {
				t.Fatal(err)
			}
		} else {
			k.write(t, names(i), i)
		}
		between = append(between, b.now(t))
	}
	k.write(t, "end", 1)
	all, batches := next(t, s, reached(k, "end"))
	for _, batch := range batches {
		seen += len(batch.Changes)
		places = append(places, place{batch.Pos, seen, true})
	}
	for i, pos := range between {
		before := 0
		for _, c := range all {
			if name := c.Key.String(); name != "end" && name[len(name)-2:] < names(i)[1:] {
				before++
			}
		}
		places = append(places, place{pos, before, false})
	}
	for _, p := range places {
		if p.want == len(all) {
			continue // no change after it
		}
		// Another process may resume the stream.
		again := b.Namespace
		if b.Reopen != nil {
			again = b.Reopen()
		}
		s, err := again.Watch(t.Context(), p.pos, []record.KindSpec{k.spec})
		if err != nil {
			t.Fatalf("watch again: %v", err)
		}
		have, _ := next(t, s, reached(k, "end"))
		first := p.want
		for p.again && first > 0 && len(have) > len(all)-first && have[0] != all[first] {
			first-- // have begins that many changes earlier
		}
		if h, w := show(nil, have), show(nil, all[first:]); !slices.Equal(h, w) {
			t.Errorf("after %s: %v, want %v", p.pos.At, h, w)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func changesPositions(t *testing.T, b *bench) {
	k := b.managed(t)
	last := b.now(t)
	s := b.follow(t, last, k)
	for i := range 5 {
		k.write(t, "a", i)
		pos := b.now(t)
		if pos.At.Compare(last.At) <= 0 {
			t.Errorf("position %s after %s and a change", pos.At, last.At)
		}
		last = pos
	}
	// A read that is not before a batch's position must see the batch's changes.
	k.write(t, "end", 9)
	_, batches := next(t, s, reached(k, "end"))
	var at record.Version
	for _, batch := range batches {
		if batch.Pos.At.Compare(at) < 0 {
			t.Errorf("batch at %s after %s", batch.Pos.At, at)
		}
		at = batch.Pos.At
	}
	snap := b.read(t, record.ReadRequest{Tokens: tokens(k), Select: []record.Selector{k.sel("end")}, NotBefore: at})
	if len(snap.Records) != 1 {
		t.Error("a change that was delivered cannot be read")
	}
}

// changesQuiet checks that a stream reports its position even if nothing is written, from its
// beginning on. Otherwise its reader would take it for dead.
func changesQuiet(t *testing.T, b *bench) {
	k := b.managed(t)
	from := b.now(t)
	s := b.follow(t, from, k)
	// The first call shows the beginning of a stream, the second a running one.
	for range 2 {
		start := time.Now()
		batch, err := s.Next(bounded(t))
		if waited := time.Since(start); err != nil || waited > 15*time.Second {
			t.Fatalf("nothing after %s: %v", waited, err)
		}
		checkBatch(t, batch)
		// An empty batch still has a position.
		if len(batch.Changes) > 0 || batch.Pos.At.Compare(from.At) < 0 {
			t.Errorf("%v at %s, want nothing at %s or later", batch.Changes, batch.Pos.At, from.At)
		}
	}
}

// changesIdle checks that the position of a stream of quiet kinds advances while other kinds
// change. Otherwise it would fall out of the history.
func changesIdle(t *testing.T, b *bench) {
	k, busy := b.managed(t), b.managed(t)
	s := b.follow(t, b.now(t), k)
	for i := range 20 {
		busy.write(t, "a", i)
	}
	after := b.now(t)
	ctx := bounded(t)
	var last record.Version
	for {
		start := time.Now()
		batch, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		checkBatch(t, batch)
		if len(batch.Changes) != 0 {
			t.Fatalf("changes of kinds not asked for: %v", batch.Changes)
		}
		// A stream without answers looks dead to its reader.
		if waited := time.Since(start); waited > 15*time.Second {
			t.Errorf("an empty batch after %s, want about a second", waited)
		}
		if batch.Pos.At.Compare(last) < 0 {
			t.Errorf("position %s after %s", batch.Pos.At, last)
		}
		last = batch.Pos.At
		if last.Compare(after.At) >= 0 {
			break
		}
		busy.write(t, "b", 1) // keep the database busy
	}
	// The advanced position must be as good as any other.
	k.write(t, "end", 1)
	cs, _ := next(t, s, reached(k, "end"))
	if have := show(nil, cs); !slices.Equal(have, []string{"+end"}) {
		t.Errorf("changes %v", have)
	}
}

func changesCancel(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	s := b.follow(t, b.now(t), k)
	ctx, cancel := context.WithCancel(t.Context())
	// Next may wait for about a second, so the cancellation comes during a wait.
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Next(ctx); err != nil {
				done <- err
				return
			}
		}
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("next: %v, want context.Canceled", err)
		}
	case <-bounded(t).Done():
		t.Fatal("next goes on without its context")
	}
}

// changesAfterCancel checks that Next returns no batch and no position if its context has ended, also
// if changes are ready. Its caller may have decided by then to read other kinds from its position on.
func changesAfterCancel(t *testing.T, b *bench) {
	k := b.managed(t)
	from := b.now(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// A backend may choose between the two by chance, so several streams ask.
	var streams []record.Stream
	for range 8 {
		streams = append(streams, b.follow(t, from, k))
	}
	witness := b.follow(t, from, k)
	k.write(t, "a", 1)
	k.write(t, "end", 1)
	next(t, witness, reached(k, "end")) // the others have the changes about now as well
	for _, s := range streams {
		batch, err := s.Next(ended)
		if !errors.Is(err, context.Canceled) || len(batch.Changes) > 0 || !batch.Pos.IsZero() {
			t.Fatalf("next: %d changes up to %v, %v; want context.Canceled", len(batch.Changes), batch.Pos, err)
		}
	}
	cs, _ := next(t, b.follow(t, from, k), reached(k, "end"))
	if have := show(nil, cs); !slices.Equal(have, []string{"+a", "+end"}) {
		t.Errorf("changes %v", have)
	}
}

func changesLost(t *testing.T, b *bench) {
	if b.LoseHistory == nil {
		t.Log("left out: the history of this backend cannot be made to get lost")
		return
	}
	k := b.managed(t)
	pos := b.now(t)
	k.write(t, "a", 1)
	// The change is now outside the history, so the position is too old.
	b.LoseHistory(t)
	s, err := b.Namespace.Watch(t.Context(), pos, []record.KindSpec{k.spec})
	if err == nil {
		_, err = s.Next(bounded(t))
		if cerr := s.Close(t.Context()); cerr != nil {
			t.Errorf("close: %v", cerr)
		}
	}
	wantError(t, "resume after the history was lost", err, record.ErrHistoryLost)
	// A new position works again.
	s = b.follow(t, b.now(t), k)
	k.write(t, "end", 1)
	next(t, s, reached(k, "end"))
}

func changesDrop(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	k.put(t, "a")
	s := b.follow(t, b.now(t), k)
	if err := b.Namespace.Drop(t.Context(), k.tok); err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	for {
		if _, err := s.Next(ctx); err != nil {
			wantError(t, "next after a drop", err, record.ErrBroken)
			return
		}
	}
}
