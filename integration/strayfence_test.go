package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestStrayOfAFence: the controller and the primary are lost between the rename of a fence and
// its view, and the application writes before anybody looks. Its inserts make a collection of
// their own. Nobody has to help: the attempt is given up, what was written is in the version
// that is served, and the next attempt takes it along.
func TestStrayOfAFence(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[{from: packages, to: packages, lens: packages.yaml, fence: view}]"})
	const documents, strays = 50, 7
	s.fill(ctx, newLedger("package"), documents)
	first := s.controller("first", breakPoint{At: beforeFence, N: 1}).ready(ctx)
	s.begin(ctx)
	if place := first.awaitReached(ctx); place != beforeFence {
		t.Fatalf("reached %q", place)
	}
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.kill(first)

	ns, _ := d.Namespace("v1")
	i := slices.IndexFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Kind == packagesKind })
	old := s.db["v1"].Collection(packagesKind)
	err = s.db["v1"].Client().Database("admin").RunCommand(ctx, bson.D{
		{Key: "renameCollection", Value: s.db["v1"].Name() + "." + packagesKind},
		{Key: "to", Value: s.db["v1"].Name() + "." + ns.Kinds[i].Pending.To},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
	stray := func(i int) string { return fmt.Sprint("package-stray-", i) }
	for i := range strays {
		if _, err := old.InsertOne(ctx, bson.D{{Key: "_id", Value: stray(i)}, {Key: "state", Value: packageState(1)}}); err != nil {
			t.Fatal(err) // acknowledged
		}
	}

	s.controller("another", breakPoint{}).ready(ctx)
	d = s.await(ctx, "the flip", flipped("v2"))
	if !slices.ContainsFunc(d.History, func(e upgradestate.Entry) bool { return strings.Contains(e.Detail+e.Outcome, record.ErrTaken.Error()) }) {
		t.Errorf("the history does not say why an attempt was given up: %+v", d.History)
	}
	if open := upgradestate.OpenBreaches(d); len(open) > 0 {
		t.Errorf("left for a person: %+v", open)
	}
	for i := range strays {
		if err := s.db["v2"].Collection(packagesKind).FindOne(ctx, bson.D{{Key: "_id", Value: stray(i)}}).Err(); errors.Is(err, mongo.ErrNoDocuments) {
			t.Errorf("%s is lost", stray(i))
		} else if err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{})
	if err != nil || n != documents+strays {
		t.Errorf("%d documents, %v", n, err)
	}
}
