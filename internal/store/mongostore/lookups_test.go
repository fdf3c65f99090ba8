package mongostore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// TestDescribedTogether: descriptions of many collections and a look for their index builds, all at
// once, cost two lists of collections and one list of indexes each. A read that has begun answers
// no later question.
func TestDescribedTogether(t *testing.T) {
	b := newBench(t)
	const kinds = looksAtOnce + 20
	toks := make([]record.Token, kinds)
	for i := range toks {
		toks[i] = b.fixed(t, fmt.Sprintf("orders%02d", i), bson.E{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$gt", Value: 0}}}}})
		b.run(t, bson.D{{Key: "createIndexes", Value: toks[i].Name}, {Key: "indexes", Value: bson.A{
			bson.D{{Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "name", Value: fmt.Sprintf("n%d", i)}},
		}}})
	}
	var lists, reads atomic.Int64
	names, goOn := make(chan struct{}), make(chan struct{})
	list, read := b.Namespace.names.do, b.indexed.do
	b.Namespace.names.do = func(ctx context.Context, asked [][]string) ([]collection, error) {
		lists.Add(1)
		<-names
		return list(ctx, asked)
	}
	b.indexed.do = func(ctx context.Context, name string) ([]listedIndex, error) {
		reads.Add(1)
		<-goOn
		return read(ctx, name)
	}
	infos := make([]record.Info, kinds)
	var g errgroup.Group
	for i, tok := range toks {
		g.Go(func() (err error) {
			infos[i], err = b.Describe(t.Context(), record.KindSpec{Name: tok.Kind, Fixed: true}, tok.Name)
			return err
		})
	}
	waitFor(t, func() bool {
		b.Namespace.names.mu.Lock()
		defer b.Namespace.names.mu.Unlock()
		return len(b.Namespace.names.waiting) == 1 && len(b.Namespace.names.waiting[0].asked) == kinds-1
	})
	close(names)
	queued := func(n int) func() bool {
		return func() bool {
			b.indexed.mu.Lock()
			defer b.indexed.mu.Unlock()
			return len(b.indexed.queue) == n
		}
	}
	waitFor(t, queued(kinds-looksAtOnce))
	var builds []record.Hindrance
	g.Go(func() (err error) { builds, err = b.Hindrances(t.Context(), toks); return err })
	waitFor(t, queued(kinds)) // those that are being read are read again, the others are shared
	close(goOn)
	if err := g.Wait(); err != nil || len(builds) > 0 {
		t.Fatal(builds, err)
	}
	for i, info := range infos {
		ixs := info.Shape.Indexes
		if !info.Exists || info.Token != toks[i] || len(ixs) != 1 || record.IndexName(ixs[0]) != fmt.Sprintf("n%d", i) || info.Shape.Options.Lookup("validator").IsZero() {
			t.Errorf("kind %d is described as %+v", i, info)
		}
	}
	if lists.Load() != 2 || reads.Load() != kinds+looksAtOnce {
		t.Errorf("%d lists of collections, %d of indexes", lists.Load(), reads.Load())
	}
}

// TestLookups: a caller that leaves is not waited for, an error belongs to its collection alone, and
// one that is stuck delays no other.
func TestLookups(t *testing.T) {
	stuck, failed := make(chan struct{}), errors.New("no")
	begun := make(chan struct{}, 1)
	ls := lookups[string]{do: func(_ context.Context, name string) (string, error) {
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
		if _, err := ls.ask(gone, "stuck"); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("left with %w", err)
		}
		return nil
	})
	<-begun
	leave()
	if _, err := ls.ask(t.Context(), "failed"); !errors.Is(err, failed) {
		t.Error(err)
	}
	if got, err := ls.ask(t.Context(), "a"); got != "a" || err != nil {
		t.Error(got, err)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	close(stuck)
	waitFor(t, func() bool {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		return ls.running == 0
	})
}

// TestLookupsThatNobodyWaitsFor: a read whose callers left is not sent, so that it delays no later one.
func TestLookupsThatNobodyWaitsFor(t *testing.T) {
	goOn := make(chan struct{})
	var read sync.Map
	ls := lookups[string]{do: func(_ context.Context, name string) (string, error) {
		read.Store(name, true)
		<-goOn
		return name, nil
	}}
	queued := func(n int) func() bool {
		return func() bool {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			return ls.running == looksAtOnce && len(ls.queue) == n
		}
	}
	var g errgroup.Group
	for i := range looksAtOnce {
		g.Go(func() error { _, err := ls.ask(t.Context(), fmt.Sprint(i)); return err })
	}
	waitFor(t, queued(0))
	gone, leave := context.WithCancel(t.Context())
	for _, ctx := range []context.Context{gone, gone, t.Context()} {
		for _, name := range []string{"left", "shared"} {
			if ctx == gone || name == "shared" {
				g.Go(func() error {
					if _, err := ls.ask(ctx, name); err != nil && ctx != gone {
						return err
					}
					return nil
				})
			}
		}
	}
	waitFor(t, queued(2))
	waitFor(t, func() bool { // all five callers have come
		ls.mu.Lock()
		defer ls.mu.Unlock()
		asking := 0
		for _, l := range ls.queue {
			asking += l.asking
		}
		return asking == 5
	})
	leave()
	waitFor(t, queued(1))
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
