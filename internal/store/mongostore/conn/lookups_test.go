package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

// TestLookups: a caller that leaves is not waited for, an error belongs to its collection alone, and
// one that is stuck delays no other.
func TestLookups(t *testing.T) {
	stuck, failed := make(chan struct{}), errors.New("no")
	begun := make(chan struct{}, 1)
	ls := lookups[string]{Do: func(_ context.Context, name string) (string, error) {
		switch name {
		case "stuck":
			begun <- struct{}{}
			<-stuck
		case "failed":
			return "", failed
		}
		return name, nil
	}}
	gone, leave := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error {
		if _, err := ls.Ask(gone, "stuck"); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("left with %w", err)
		}
		return nil
	})
	<-begun
	leave()
	if _, err := ls.Ask(t.Context(), "failed"); !errors.Is(err, failed) {
		t.Error(err)
	}
	if got, err := ls.Ask(t.Context(), "a"); got != "a" || err != nil {
		t.Error(got, err)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	close(stuck)
	await(t, func() bool {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		return ls.running == 0
	})
}

// TestLookupsThatNobodyWaitsFor: a read whose callers left is not sent, so that it delays no later one.
func TestLookupsThatNobodyWaitsFor(t *testing.T) {
	goOn := make(chan struct{})
	var read sync.Map
	ls := lookups[string]{Do: func(_ context.Context, name string) (string, error) {
		read.Store(name, true)
		<-goOn
		return name, nil
	}}
	queued := func(n int) func() bool {
		return func() bool {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			return ls.running == LooksAtOnce && len(ls.queue) == n
		}
	}
	var g errgroup.Group
	for i := range LooksAtOnce {
		g.Go(func() error { _, err := ls.Ask(t.Context(), fmt.Sprint(i)); return err })
	}
	await(t, queued(0))
	gone, leave := context.WithCancel(t.Context())
	for _, ctx := range []context.Context{gone, gone, t.Context()} {
		for _, name := range []string{"left", "shared"} {
			if ctx == gone || name == "shared" {
				g.Go(func() error {
					if _, err := ls.Ask(ctx, name); err != nil && ctx != gone {
						return err
					}
					return nil
				})
			}
		}
	}
	await(t, queued(2))
	await(t, func() bool { // all five callers have come
		ls.mu.Lock()
		defer ls.mu.Unlock()
		asking := 0
		for _, l := range ls.queue {
			asking += l.asking
		}
		return asking == 5
	})
	leave()
	await(t, queued(1))
	close(goOn)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if _, ok := read.Load("left"); ok {
		t.Error("a collection was read for nobody")
	}
	if _, ok := read.Load("shared"); !ok {
		t.Error("a collection was not read, for which one caller still waited")
	}
}
