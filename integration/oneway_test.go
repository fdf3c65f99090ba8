package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/bbs"
)

// TestOneWay switches with the old version disabled: whatever is written afterwards, its
// data stays byte for byte as the switch left it, and there is no rollback.
func TestOneWay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{oneWay: true})
	tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
	s.controller("controller", breakPoint{}).ready(ctx)
	tr.start(ctx, s.server("server", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 20)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))

	ns, _ := d.Namespace("v1")
	var old []collection
	for _, kind := range []string{bbs.KindDesiredLRPs, packagesKind} {
		k, _ := ns.Kind(kind)
		old = append(old, collection{s.db["v1"].Collection(k.Physical)})
	}
	before := contents(ctx, t, old)
	const further = 10_000
	docs := make([]any, further)
	for i := range docs {
		docs[i] = packageDoc("v2", fmt.Sprintf("further-%05d", i), 1)
		tr.packages.Put(fmt.Sprintf("further-%05d", i), packageState(1))
	}
	if _, err := s.db["v2"].Collection(packagesKind).InsertMany(ctx, docs); err != nil {
		t.Fatal(err)
	}
	tr.awaitWrites(ctx, "v2", 100)
	// Another controller knows it as well.
	s.controller("another", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "controller", "another")
	tr.awaitWrites(ctx, "v2", 200)
	tr.settle(ctx, d)
	if !bytes.Equal(before, contents(ctx, t, old)) {
		t.Error("the old namespace has changed since the switch")
	}
	names, err := s.db["v1"].ListCollectionNames(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes later v1 holds what it held, in %v", further+tr.packages.count("v2")+tr.processes.count("v2"), names)
	if now, err := s.record.Get(ctx); err != nil || len(now.Available) != 0 {
		t.Errorf("%v: offered is %v", err, now.Available)
	}
}

func contents(ctx context.Context, t *testing.T, cs []collection) []byte {
	t.Helper()
	var all []byte
	for _, c := range cs {
		all = append(all, c.content(ctx, t)...)
	}
	return all
}
