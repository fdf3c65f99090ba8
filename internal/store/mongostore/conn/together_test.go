package conn_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestDescribedTogether: descriptions of many collections and a look for their index builds, all at
// once, cost two lists of collections and one list of indexes each. A read that has begun answers
// no later question.
func TestDescribedTogether(t *testing.T) {
	b := storetest.NewBench(t)
	const kinds = conn.LooksAtOnce + 20
	toks := make([]record.Token, kinds)
	for i := range toks {
		toks[i] = b.Fixed(t, fmt.Sprintf("orders%02d", i), bson.E{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$gt", Value: 0}}}}})
		b.Run(t, bson.D{{Key: "createIndexes", Value: toks[i].Name}, {Key: "indexes", Value: bson.A{
			bson.D{{Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "name", Value: fmt.Sprintf("n%d", i)}},
		}}})
	}
	var lists, reads atomic.Int64
	names, goOn := make(chan struct{}), make(chan struct{})
	list, read := b.ListRounds().Do, b.Indexed.Do
	b.ListRounds().Do = func(ctx context.Context, asked [][]string) ([]conn.Collection, error) {
		lists.Add(1)
		<-names
		return list(ctx, asked)
	}
	b.Indexed.Do = func(ctx context.Context, name string) ([]conn.ListedIndex, error) {
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
		if i == 0 { // the first round is under way before anybody else could join it
			storetest.WaitFor(t, func() bool { return lists.Load() == 1 })
		}
	}
	storetest.WaitFor(t, func() bool {
		asked := b.ListRounds().Waiting()
		return len(asked) == 1 && asked[0] == kinds-1
	})
	close(names)
	queued := func(n int) func() bool {
		return func() bool { return b.IndexReads() == n }
	}
	storetest.WaitFor(t, func() bool { return reads.Load() == conn.LooksAtOnce && queued(kinds-conn.LooksAtOnce)() })
	var builds []record.Hindrance
	g.Go(func() (err error) { builds, err = b.Hindrances(t.Context(), toks); return err })
	storetest.WaitFor(t, queued(kinds)) // those that are being read are read again, the others are shared
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
	if lists.Load() != 2 || reads.Load() != kinds+conn.LooksAtOnce {
		t.Errorf("%d lists of collections, %d of indexes", lists.Load(), reads.Load())
	}
}
