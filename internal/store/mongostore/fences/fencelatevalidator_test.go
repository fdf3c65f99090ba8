package fences_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestLateValidator: commands of an attempt that has ended arrive after everything else. Neither
// refuses the application's writes for good, nor lifts the fence of the next attempt unnoticed.
func TestLateValidator(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	fence := func(seq uint64) record.Fence {
		return record.Fence{Class: record.FenceValidator, Token: tok, To: record.PhysicalName("orders", seq)}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(is bool) {
		t.Helper()
		_, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{})
		if is != (err == nil) || !is && !conn.HasCode(err, conn.CodeValidation) {
			t.Errorf("the application's insert: %v, want open: %t", err, is)
		}
	}
	uphold := func(to string, breaches int) {
		t.Helper()
		f := fence(0)
		f.To = to
		if found, err := b.Uphold(t.Context(), f, nil); err != nil || len(found) != breaches {
			t.Errorf("uphold %q: found %+v, %v, want %d", to, found, err, breaches)
		}
	}
	nothing := func(context.Context) error { return nil }

	// The caller pauses before its command, and checks afterwards, even if its time is up.
	for seq, expire := range []bool{false, true} {
		f := fence(uint64(seq) + 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := b.SetUnlessEnded(ctx, f, func(ctx context.Context) error {
			must(b.Unfence(t.Context(), f))
			open(true)
			must(b.SetValidator(t.Context(), tok, fences.Refusing(f.To)))
			if expire {
				cancel()
			}
			return ctx.Err()
		}, nothing, func(ctx context.Context) error { return b.LiftValidator(ctx, f) })
		if err == nil {
			t.Error("a fence that has ended stands")
		}
		open(true)
	}

	// The caller dies before its check.
	must(b.Unfence(t.Context(), fence(3)))
	must(b.SetValidator(t.Context(), tok, fences.Refusing(fence(3).To)))
	open(false)
	uphold("", 0)
	open(true)

	// The next attempt's fence stands already.
	must(b.Fence(t.Context(), fence(4)))
	uphold("", 0) // by a record from before
	open(false)
	uphold(fence(4).To, 0)
	must(b.SetValidator(t.Context(), tok, fences.Refusing(fence(3).To)))
	uphold("", 0)
	open(false)
	uphold(fence(4).To, 1)
	// An end of the former fence comes late, or its command does.
	must(b.RestoreValidator(t.Context(), fence(3), tok, tok.ID))
	open(false)
	uphold(fence(4).To, 1)
	must(b.SetValidator(t.Context(), tok, fences.Restoration{}))
	open(true)
	must(b.StandAgain(t.Context(), tok, fence(3).To, tok.ID))
	open(false)
	uphold(fence(4).To, 1)
	uphold(fence(4).To, 0)
	must(b.Unfence(t.Context(), fence(4)))
	open(true)
	b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
	uphold("", 0) // the application may replace its collection
}

// TestUnfenceWaitsForALateValidator: the fence's command waits for a lock while the fence ends.
func TestUnfenceWaitsForALateValidator(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	f := record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n1"}
	s, err := b.Raw.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.EndSession(t.Context())
	if err := s.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("orders").InsertOne(mongo.NewSessionContext(t.Context(), s), bson.D{}); err != nil {
		t.Fatal(err)
	}
	// The sender has noted the fence.
	if err := b.Note(t.Context(), conn.NoteRestore+tok.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "seq", Value: int64(1)}}}}); err != nil {
		t.Fatal(err)
	}
	// A fence's command without its limit on the wait, so that a slow machine changes nothing.
	v := fences.Refusing(f.To)
	late, err := conn.WithUUID(bson.D{{Key: "collMod", Value: "orders"}, {Key: "validator", Value: v.Validator},
		{Key: "validationLevel", Value: v.Level}, {Key: "validationAction", Value: v.Action}}, tok)
	if err != nil {
		t.Fatal(err)
	}
	set := make(chan error, 1)
	go func() { set <- b.DB.RunCommand(t.Context(), late).Err() }()
	storetest.WaitFor(t, func() bool { // it waits for the lock
		ops, err := b.Admin().RunCommand(t.Context(), bson.D{{Key: "currentOp", Value: true}, {Key: "command.collMod", Value: "orders"}, {Key: "waitingForLock", Value: true}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		_, err = ops.LookupErr("inprog", "0")
		return err == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := b.Unfence(ctx, f); err != nil { // ends the transaction in its way
		t.Fatal(err)
	}
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{}); err != nil {
		t.Errorf("the application's insert: %v", err)
	}
}

// TestUnfenceOfAFenceNeverSent: an abort before the fence waits for no transaction, and ends none.
func TestUnfenceOfAFenceNeverSent(t *testing.T) {
	for name, earlier := range map[string]bool{"the first": false, "after another": true} {
		t.Run(name, func(t *testing.T) {
			b := storetest.NewBench(t)
			tok := b.Fixed(t, "orders")
			if earlier {
				f := record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n1"}
				if err := b.Fence(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				if err := b.Unfence(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			s, err := b.Raw.Client().StartSession()
			if err != nil {
				t.Fatal(err)
			}
			defer s.EndSession(t.Context())
			if err := s.StartTransaction(); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Raw.Collection("orders").InsertOne(mongo.NewSessionContext(t.Context(), s), bson.D{}); err != nil {
				t.Fatal(err)
			}
			if err := b.Unfence(t.Context(), record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n2"}); err != nil {
				t.Fatal(err)
			}
			if err := s.CommitTransaction(t.Context()); err != nil {
				t.Errorf("the application's transaction was ended: %v", err)
			}
		})
	}
}

// TestLateWriteBlock: the command of a fence that has ended comes after everything else.
func TestLateWriteBlock(t *testing.T) {
	srv := storetest.Start(t, localmongo.Options{Auth: true, Own: true})
	b := storetest.BenchAt(t, srv.URI(), "app")
	tok := b.Fixed(t, "orders")
	mode := func(want int64) {
		t.Helper()
		if got, err := b.WriteBlockMode(t.Context()); err != nil || got != want {
			t.Errorf("write block %d, %v, want %d", got, err, want)
		}
	}
	fence := func(seq uint64) record.Fence {
		return record.Fence{Class: record.FenceWriteBlock, Token: tok, To: record.PhysicalName("orders", seq)}
	}
	late := func(f record.Fence, end func() error) {
		t.Helper()
		err := b.SetUnlessEnded(t.Context(), f, func(ctx context.Context) error {
			if err := end(); err != nil {
				return conn.Permanent(err)
			}
			return b.SetWriteBlock(ctx, true)
		}, func(context.Context) error { return nil }, b.LiftLateBlock)
		if err == nil {
			t.Error("a fence that has ended stands")
		}
	}
	late(fence(1), func() error { return b.Unfence(t.Context(), fence(1)) })
	mode(fences.BlockOff)
	// The next attempt's block stays.
	if err := b.Fence(t.Context(), fence(3)); err != nil {
		t.Fatal(err)
	}
	late(fence(2), func() error { return b.NoteUnfenced(t.Context(), tok, fence(2).To) })
	mode(fences.BlockOn)
	if err := b.Unfence(t.Context(), fence(3)); err != nil {
		t.Fatal(err)
	}
	mode(fences.BlockOff)
}
