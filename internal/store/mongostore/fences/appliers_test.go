package fences_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestApplierOverTheSeal: a controller sleeps over a rollback with an image in memory. After it the
// application writes, and the controller applies the image. The kind has kept its name and its UUID.
func TestApplierOverTheSeal(t *testing.T) {
	for _, class := range []record.FenceClass{record.FenceValidator, record.FenceWriteBlock} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			b := storetest.NewBench(t)
			if class == record.FenceWriteBlock { // it stops a whole server, and needs access control
				b = storetest.BenchAt(t, storetest.Start(t, localmongo.Options{Auth: true, Own: true}).URI(), "app")
			}
			applierOverTheSeal(t, b, class)
		})
	}
}

func applierOverTheSeal(t *testing.T, b *storetest.Bench, class record.FenceClass) {
	ctx := t.Context()
	tok := b.Fixed(t, "orders")
	id := bson.D{{Key: "_id", Value: "a"}}
	document := func(v string) bson.D { return append(bson.D{{Key: "_id", Value: "a"}}, bson.E{Key: "v", Value: v}) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := func(tok record.Token, version byte, v string) (record.Outcome, error) {
		t.Helper()
		doc, err := bson.Marshal(document(v))
		must(err)
		res, err := b.Apply(ctx, record.Batch{Tokens: record.Tokens{"orders": tok}, Epoch: 2, Groups: []record.GroupWrite{{
			Group: "a", Version: record.Version{15: version}, Writes: []record.Write{{Kind: "orders", Key: record.StringKey("a"), Doc: doc}},
		}}})
		if err != nil {
			return 0, err
		}
		return res[0].Outcome, nil
	}

	// The way back: the kind is a target behind its fence.
	first := record.Fence{Class: class, Token: tok, To: "orders.n2"}
	must(b.Fence(ctx, first))
	old := tok
	old.Mark = first.To
	if outcome, err := apply(old, 1, "A"); err != nil || outcome != record.Applied {
		t.Fatalf("apply behind the fence: %s, %v", outcome, err)
	}

	entry := func() error { return nil }
	// A write block waits for all transactions.
	if class == record.FenceValidator {
		entry = fromBefore(t, b)
	}

	// The rollback.
	seal := record.Fence{Class: class, Token: tok, To: "orders.n3", Ends: first.To}
	must(b.Fence(ctx, seal))
	must(b.Fence(ctx, seal)) // a repeated seal
	must(entry())
	must(b.Unfence(ctx, seal))
	_, err := b.Raw.Collection("orders").ReplaceOne(ctx, id, document("C"))
	must(err)

	if outcome, err := apply(old, 2, "B"); !errors.Is(err, record.ErrFenced) {
		t.Errorf("apply of the sleeping controller: %s, %v, want %v", outcome, err, record.ErrFenced)
	}
	var have struct{ V string }
	must(b.Raw.Collection("orders").FindOne(ctx, id).Decode(&have))
	if have.V != "C" {
		t.Errorf("the record is %q, not the application's write", have.V)
	}
}

// fromBefore begins a transaction of the sleeping controller. Its snapshot shows no end of the fence.
// So far it has read only another kind. The result writes a guard in it, as each write of an Apply
// does, and returns an error if that succeeds.
func fromBefore(t *testing.T, b *storetest.Bench) func() error {
	t.Helper()
	ctx, others := t.Context(), b.Raw.Collection("others")
	_, err := others.InsertOne(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := b.Raw.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.EndSession(context.WithoutCancel(ctx)) })
	txn := mongo.NewSessionContext(ctx, session)
	err = errors.Join(session.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot())), others.FindOne(txn, bson.D{}).Err())
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		_, err := b.Raw.Collection(conn.GuardsName("orders")).InsertOne(txn, bson.D{{Key: "_id", Value: "b"}})
		if !conn.HasCode(err, conn.CodeWriteConflict) {
			return fmt.Errorf("a guard in a snapshot from before the seal: %v, want a write conflict", err)
		}
		return nil
	}
}

// TestApplierOverARecovery: a seal dies before it ends the former fence, and the coordination store
// is lost. The recovered record opens the kind from the new fence, and appliers knew the former one.
func TestApplierOverARecovery(t *testing.T) {
	t.Parallel()
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	old := tok
	old.Mark = "orders.n2"
	seal := record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n3"}
	err := errors.Join(
		b.Fence(t.Context(), record.Fence{Class: seal.Class, Token: tok, To: old.Mark}),
		b.NoteUnfenced(t.Context(), tok, old.Mark), // as the seal does first
		b.Fence(t.Context(), seal))
	seal.Ends = seal.To
	if err = errors.Join(err, b.Unfence(t.Context(), seal)); err != nil {
		t.Fatal(err)
	}
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{"orders.n2", "orders.n3"} {
		old.Mark = mark
		res, err := b.Apply(t.Context(), record.Batch{Tokens: record.Tokens{"orders": old}, Epoch: 2, Groups: []record.GroupWrite{{
			Group: "a", Version: record.Version{15: 1}, Writes: []record.Write{{Kind: "orders", Key: record.StringKey("a"), Doc: doc}},
		}}})
		if !errors.Is(err, record.ErrFenced) {
			t.Errorf("apply behind %s after the recovery: %+v, %v, want %v", mark, res, err, record.ErrFenced)
		}
	}
}

// TestSealAfterARecovery: a seal dies before it ends the former fence, and the coordination store is
// lost. Another version is recovered, and the kind gets a new seal. The recovered record may not
// know the latest fence of a write block.
func TestSealAfterARecovery(t *testing.T) {
	for _, known := range []string{"orders.n3", "orders.n2"} {
		t.Run(known, func(t *testing.T) {
			t.Parallel()
			b := storetest.NewBench(t)
			tok := b.Fixed(t, "orders")
			fence := func(to, ends string) record.Fence {
				return record.Fence{Class: record.FenceValidator, Token: tok, To: to, Ends: ends}
			}
			seal := fence("orders.n20", known)
			err := errors.Join(
				b.Fence(t.Context(), fence("orders.n2", "")),
				b.NoteUnfenced(t.Context(), tok, "orders.n2"), // as the seal does first
				b.Fence(t.Context(), fence("orders.n3", "")),
				b.Fence(t.Context(), seal),
				b.Fence(t.Context(), seal))
			if err != nil {
				t.Fatal(err)
			}
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}})
			if err != nil {
				t.Fatal(err)
			}
			for mark, want := range map[string]error{"orders.n2": record.ErrFenced, "orders.n3": record.ErrFenced, "orders.n20": nil} {
				tok.Mark = mark
				_, err := b.Apply(t.Context(), record.Batch{Tokens: record.Tokens{"orders": tok}, Epoch: 2, Groups: []record.GroupWrite{{
					Group: "a", Version: record.Version{15: 1}, Writes: []record.Write{{Kind: "orders", Key: record.StringKey("a"), Doc: doc}},
				}}})
				if !errors.Is(err, want) {
					t.Errorf("apply behind %s after the new seal: %v, want %v", mark, err, want)
				}
			}
		})
	}
}
