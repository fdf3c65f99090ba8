package fences_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestRenameUnderView: the hidden collection gets another hidden name, as when a switch back
// seals it. A client that still reads the old name finds what there is, all the time.
func TestRenameUnderView(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "kept"}}); err != nil {
		t.Fatal(err)
	}
	f := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n1"}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	reading, stop := make(chan error), make(chan struct{})
	go func() {
		defer close(reading)
		missed := 0
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n == 0 {
					reading <- errors.New("nothing was read")
				}
				return
			default:
			}
			err := b.Raw.Collection("orders").FindOne(context.WithoutCancel(t.Context()), bson.D{{Key: "_id", Value: "kept"}}).Err()
			// The server looks up what a view shows, and then reads that: the one read that the
			// rename falls into may find nothing there.
			if errors.Is(err, mongo.ErrNoDocuments) && missed == 0 {
				missed++
				continue
			}
			if err != nil && !conn.HasCode(err, 175) {
				reading <- err
				return
			}
		}
	}()
	// The controllers' stream of the database's changes goes on over each rename and each view.
	changes, err := b.Raw.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetShowExpandedEvents(true))
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close(t.Context()) //nolint:errcheck // only read
	seal := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n2"}
	seal.Token.Name = f.To
	for range 2 { // asked for again it is done
		if err := b.Fence(t.Context(), seal); err != nil {
			t.Error(err)
		}
	}
	upheld := f
	for _, known := range []string{f.To, seal.To} { // also who slept, and knows the earlier name
		upheld.Token.Name = known
		if found, err := b.Uphold(t.Context(), upheld, nil); err != nil || len(found) > 0 {
			t.Errorf("upheld: %+v, %v", found, err)
		}
	}
	close(stop)
	if err := <-reading; err != nil {
		t.Error(err)
	}
	if err := writes["insert"](b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeViewWrite) {
		t.Errorf("the application's insert: %v", err)
	}

	// A server that is busy ends the command after any of its operations, so that the collection has
	// the new name and the view shows the former one. Or a failover keeps the view and loses the new
	// name. Nobody wrote meanwhile.
	halves := []func(from, to string) bson.A{
		func(_, to string) bson.A { return b.RepointOps("orders", to, f.To) },
	}
	for done := range b.MoveOps(fences.ViewMove("", "", "", "")) {
		halves = append(halves, func(from, to string) bson.A {
			return b.MoveOps(fences.ViewMove(from, to, "orders", f.To))[:done+1]
		})
	}
	for i, half := range halves {
		next := record.Fence{Class: record.FenceView, Token: tok, To: fmt.Sprintf("orders.n%d", i+3)}
		next.Token.Name = seal.To
		var err error
		for _, upholds := range []bool{true, false} { // the view shows no collection after the last one
			if err := applied(t, b, half(next.Token.Name, next.To)); err != nil && !fences.Partly(err) {
				t.Fatal(err)
			}
			if !upholds {
				continue
			}
			var found []record.Breach
			storetest.WaitFor(t, func() bool {
				found, err = b.Uphold(t.Context(), upheld, nil)
				return !errors.Is(err, conn.ErrWholeServer)
			})
			if err != nil || len(found) > 0 {
				t.Errorf("half %d: upheld: %+v, %v", i, found, err)
			}
			next.Token.Name, next.To = hiddenName(t, b, tok), next.To+"0"
		}
		if err := b.Fence(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		view, err := b.CollectionNamed(t.Context(), "orders")
		if err != nil || view == nil || view.ViewOn() != next.To || hiddenName(t, b, tok) != next.To {
			t.Errorf("half %d: the view %+v, %v", i, view, err)
		}
		seal = next
	}
	open := record.Fence{Class: record.FenceView, Token: tok, To: "orders", Ends: f.To}
	open.Token.Name = seal.To
	if err := b.Fence(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{}); err != nil {
		t.Error(err)
	}
	b.Run(t, bson.D{{Key: "create", Value: "end"}})
	for {
		if !changes.Next(t.Context()) {
			t.Fatalf("the stream of changes ended: %v", changes.Err())
		}
		if name, _ := changes.Current.Lookup("ns", "coll").StringValueOK(); name == "end" {
			return
		}
	}
}

// applied is applyOps, repeated while the server is too busy to give it its locks.
func applied(t *testing.T, b *storetest.Bench, ops bson.A) (err error) {
	t.Helper()
	storetest.WaitFor(t, func() bool {
		err = b.ApplyOps(t.Context(), ops)
		return !errors.Is(err, conn.ErrWholeServer)
	})
	return err
}

func hiddenName(t *testing.T, b *storetest.Bench, tok record.Token) string {
	t.Helper()
	name, err := b.Locate(t.Context(), tok.ID)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestStandingFence: a fence that has to be in force and is not is not set again, but reported,
// because writes may have passed it.
func TestStandingFence(t *testing.T) {
	b := storetest.NewBench(t)
	for class, lift := range map[record.FenceClass]func(name, to string) error{
		record.FenceView: func(name, to string) error {
			b.Run(t, bson.D{{Key: "drop", Value: name}})
			return b.Rename(t.Context(), to, name)
		},
		record.FenceValidator: func(name, _ string) error {
			b.Run(t, bson.D{{Key: "collMod", Value: name}, {Key: "validator", Value: bson.D{}}})
			return nil
		},
	} {
		f := record.Fence{Class: class, Token: b.Fixed(t, "orders_"+string(class)), To: "orders_" + string(class) + ".n1"}
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		f.Standing = true
		if err := b.Fence(t.Context(), f); err != nil {
			t.Errorf("%s stands: %v", class, err)
		}
		if err := lift(f.Token.Name, f.To); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := b.Fence(t.Context(), f); !errors.Is(err, record.ErrLapsed) {
				t.Errorf("%s is gone: %v", class, err)
			}
		}
		if err := writes["insert"](b.Raw.Collection(f.Token.Name), t); err != nil {
			t.Errorf("%s was set again: %v", class, err)
		}
	}
}

// TestPartlyDone: the server's reply says which operations of a command were done, so that a command
// is repeated if more than the look at a document failed.
func TestPartlyDone(t *testing.T) {
	b := storetest.NewBench(t)
	b.Run(t, bson.D{{Key: "create", Value: "orders"}})
	look := b.ExistsOp("orders", bson.NewObjectID(), bson.D{})
	err := applied(t, b, bson.A{look, b.RenameOp("orders", "orders.n1"), b.UnviewOp("nothing"), b.ViewOp("orders", "orders.n1", "orders.n1")})
	if !fences.Partly(err) || !fences.OnlyLooked(err, 4, 4) {
		t.Errorf("all done: %v", err)
	}
	look = b.ExistsOp("orders.n1", bson.NewObjectID(), bson.D{})
	err = applied(t, b, bson.A{look, look})
	if !fences.Partly(err) || fences.OnlyLooked(err, 2, 2) {
		t.Errorf("not done: %v", err)
	}
}

// TestGateWithoutDocument: the server ended the command that makes a gate after the collection and
// before its document. The fence is set nevertheless.
func TestGateWithoutDocument(t *testing.T) {
	b := storetest.NewBench(t)
	f := record.Fence{Class: record.FenceView, Token: b.Fixed(t, "orders"), To: "orders.n1"}
	if err := applied(t, b, bson.A{b.CreateOp(fences.GateOf(f.To))}); err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := writes["insert"](b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeViewWrite) {
		t.Errorf("the application's insert: %v", err)
	}
}
