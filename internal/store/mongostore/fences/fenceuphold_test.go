package fences_test

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestUpholdView: a user who may write may drop the view that a fence has left, and then
// gets acknowledgements for writes to a collection that nobody reads.
func TestUpholdView(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	f := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n1"}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	f.Token.Name = f.To // as the record has it from then on
	uphold := func(known ...string) (found []record.Breach) {
		t.Helper()
		err := b.UntilDone(t.Context(), "", func(ctx context.Context) (err error) { // a busy server gives up waiting for its locks
			found, err = b.Uphold(ctx, f, known)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	look := func(what string) {
		t.Helper()
		f.Look = true
		defer func() { f.Look = false }()
		for range 2 { // it stays until it is recorded
			if found := uphold(); len(found) == 0 || !strings.Contains(found[len(found)-1].What, what) {
				t.Errorf("a look found %+v, want %q", found, what)
			}
		}
	}
	inForce := func() {
		t.Helper()
		if err := writes["insert"](b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeViewWrite) {
			t.Fatalf("the application's insert: %v", err)
		}
		if n, err := b.Raw.Collection("orders").CountDocuments(t.Context(), bson.D{}); err != nil || n == 0 {
			t.Fatalf("%d documents through the view, %v", n, err)
		}
		if at, err := b.Locate(t.Context(), tok.ID); err != nil || at != f.To {
			t.Fatalf("the kind is at %s, %v", at, err)
		}
	}
	// The server ended the last move of the view before it removed the note of it. That does not
	// explain that a client removes the view afterwards.
	if _, err := b.Raw.Collection(conn.MarksCollection).InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: conn.NoteMoves + "orders"}, {Key: "mark", Value: f.To}, {Key: "on", Value: f.To},
	}); err != nil {
		t.Fatal(err)
	}
	if found := uphold(); len(found) != 0 {
		t.Fatalf("found %+v of a fence in force", found)
	}

	b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
	look("was removed")
	if found := uphold(); len(found) != 1 || !strings.Contains(found[0].What, "was removed") || found[0].Aside != "" {
		t.Fatalf("found %+v", found)
	}
	inForce()

	b.Run(t, bson.D{{Key: "collMod", Value: "orders"}, {Key: "viewOn", Value: "nothing"}, {Key: "pipeline", Value: bson.A{}}})
	look("was changed")
	if found := uphold(); len(found) != 1 || !strings.Contains(found[0].What, "was changed") {
		t.Fatalf("found %+v", found)
	}
	inForce()

	var aside []string
	for turn, n := range []int{3, 1} {
		b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
		for range n {
			if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{}); err != nil {
				t.Fatal(err) // acknowledged
			}
		}
		found := uphold()
		inForce()
		for range 2 { // found again by the next leader
			if again := uphold(); len(again) != turn+1 || len(found) != turn+1 {
				t.Fatalf("found %+v, then %+v", found, again)
			}
		}
		last := found[len(found)-1]
		if last.Count != int64(n) || !strings.HasPrefix(last.Aside, conn.AsidePrefix+"orders.") || len(b.Docs(t, last.Aside)) != n {
			t.Errorf("set aside: %+v", last)
		}
		aside = append(aside, last.Aside)
	}
	if aside[0] == aside[1] {
		t.Errorf("set aside under one name: %v", aside)
	}

	// The server ended a move of the view after it had removed the view, and an insert took the name. The
	// repair ends the move, so its note does not explain that a client removes the view right afterwards.
	if err := applied(t, b, b.RepointOps("orders", f.To, f.To)[:2]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{}); err != nil {
		t.Fatal(err)
	}
	if found := uphold(); len(found) != 3 {
		t.Fatalf("found %+v", found)
	}
	inForce()
	b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
	if found := uphold(); len(found) != 4 || !strings.Contains(found[3].What, "was removed") {
		t.Fatalf("found %+v", found)
	}

	// A collection that is a kind itself is no orphan.
	b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
	b.Run(t, bson.D{{Key: "create", Value: "orders"}})
	kind, err := b.CollectionNamed(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	uphold(kind.ID())
	if now, err := b.CollectionNamed(t.Context(), "orders"); err != nil || now == nil || now.ID() != kind.ID() {
		t.Errorf("under the name is %+v, %v", now, err)
	}
	b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
	uphold()

	// The collection itself under its name again, as after a rename by hand.
	b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
	if err := b.Rename(t.Context(), f.To, "orders"); err != nil {
		t.Fatal(err)
	}
	look("got its name back")
	if found := uphold(); len(found) != 4 || !strings.Contains(found[len(found)-1].What, "got its name back") {
		t.Errorf("found %+v", found)
	}
	inForce()
	if _, err := b.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range aside {
		if len(b.Docs(t, name)) == 0 {
			t.Errorf("%s was dropped", name)
		}
	}
}

// TestUpholdValidator: the application removes the validator that keeps it out.
func TestUpholdValidator(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	_, restore, err := b.Prepare(t.Context(), tok, record.FenceValidator)
	if err != nil {
		t.Fatal(err)
	}
	f := record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n1", Restore: restore}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	for turn := range 2 {
		look := f
		look.Look = true
		for range 2 {
			if found, err := b.Uphold(t.Context(), look, nil); err != nil || len(found) != turn {
				t.Fatalf("turn %d: a look found %+v, %v", turn, found, err)
			}
		}
		if found, err := b.Uphold(t.Context(), f, nil); err != nil || len(found) != turn {
			t.Fatalf("turn %d: found %+v, %v", turn, found, err)
		}
		if err := writes["insert"](b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeValidation) {
			t.Errorf("insert: %v", err)
		}
		b.Run(t, bson.D{{Key: "collMod", Value: "orders"}, {Key: "validator", Value: bson.D{}}})
	}
}
