package fences_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// strayed is a view fence of which a primary that died has left the rename alone, and the
// collection that the application's inserts have made meanwhile.
func strayed(t *testing.T, b *storetest.Bench, docs ...any) record.Fence {
	t.Helper()
	f := record.Fence{Class: record.FenceView, Token: b.Fixed(t, "orders"), To: "orders.n1"}
	if err := b.Rename(t.Context(), "orders", f.To); err != nil {
		t.Fatal(err)
	}
	insertStray(t, b, docs...)
	return f
}

func insertStray(t *testing.T, b *storetest.Bench, docs ...any) {
	t.Helper()
	if _, err := b.Raw.Collection("orders").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err) // acknowledged
	}
}

// settled fails the test unless the kind has its name, the documents, and so many strays are left.
func settled(t *testing.T, b *storetest.Bench, f record.Fence, documents, strays int) {
	t.Helper()
	if name, err := b.Locate(t.Context(), f.Token.ID); err != nil || name != "orders" {
		t.Fatalf("located %q, %v", name, err)
	}
	if got := len(b.Docs(t, "orders")); got != documents {
		t.Errorf("the kind has %d documents, want %d", got, documents)
	}
	for _, name := range b.AllNames(t) {
		if strings.HasPrefix(name, conn.AsidePrefix) {
			strays--
		}
	}
	if strays != 0 {
		t.Errorf("there are %v", b.AllNames(t))
	}
	if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{}); err != nil {
		t.Errorf("insert: %v", err)
	}
}

// TestUnfenceOverAStray: what was acknowledged into the stray is in the kind.
func TestUnfenceOverAStray(t *testing.T) {
	b := storetest.NewBench(t)
	f := strayed(t, b, bson.D{{Key: "_id", Value: "stray"}}, bson.D{{Key: "_id", Value: 7}},
		bson.D{{Key: "_id", Value: "two"}, {Key: "n", Value: 2}}) // which is there with the same
	var g errgroup.Group
	for range 3 { // controllers that do not know of each other
		g.Go(func() error { return b.Unfence(t.Context(), f) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	settled(t, b, f, 4, 0)
	if err := b.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	// The next attempt fences as ever.
	f.To = "orders.n2"
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// TestUnfenceKeepsConflicts: the kind is the application's again, and what cannot be in it is
// kept and named each time, without what is in it.
func TestUnfenceKeepsConflicts(t *testing.T) {
	b := storetest.NewBench(t)
	f := record.Fence{Class: record.FenceView, Token: b.Fixed(t, "orders"), To: "orders.n1"}
	index := mongo.IndexModel{Keys: bson.D{{Key: "n", Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true)}
	if _, err := b.Raw.Collection("orders").Indexes().CreateOne(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	if err := b.Rename(t.Context(), "orders", f.To); err != nil {
		t.Fatal(err)
	}
	insertStray(t, b, bson.D{{Key: "_id", Value: 1.0}, {Key: "n", Value: "secret"}}, // the key of 1
		bson.D{{Key: "_id", Value: "other"}, {Key: "n", Value: 2}}, // the unique value of "two"
		bson.D{{Key: "_id", Value: "fits"}})
	for range 2 {
		err := b.Unfence(t.Context(), f)
		var kept *record.KeptError
		if !errors.As(err, &kept) || len(kept.Kept) != 1 || kept.Kept[0].Count != 2 || strings.Contains(err.Error(), "secret") {
			t.Fatalf("error is %v", err)
		}
		if got := b.Docs(t, kept.Kept[0].Aside); len(got) != 2 || !strings.Contains(err.Error(), kept.Kept[0].Aside) {
			t.Errorf("%v keeps %v", err, got)
		}
	}
	settled(t, b, f, 3, 1)
}

// TestUnfenceGoesOnOverAStray: killed at any step, and another collection made under the
// name wherever that is free, another controller ends it the same way.
func TestUnfenceGoesOnOverAStray(t *testing.T) {
	another := bson.D{{Key: "_id", Value: "another"}}
	for step, die := range map[string]func(t *testing.T, b *storetest.Bench, f record.Fence, stray *conn.Collection) int{
		"the stray was noted": func(t *testing.T, b *storetest.Bench, f record.Fence, stray *conn.Collection) int {
			note := bson.D{{Key: "$addToSet", Value: bson.D{{Key: "aside", Value: "dbc_aside.orders." + stray.ID()[:12]}}}}
			if err := b.Note(t.Context(), conn.NoteStrays+f.To, note); err != nil {
				t.Fatal(err)
			}
			return 0
		},
		"an election after the stray was renamed": func(t *testing.T, b *storetest.Bench, f record.Fence, stray *conn.Collection) int {
			if err := b.OverStray(t.Context(), f.Token, f.To, stray); err != nil {
				t.Fatal(err)
			}
			if err := b.Rename(t.Context(), "orders", f.To); err != nil {
				t.Fatal(err)
			}
			return 0
		},
		"an election after the stray was renamed, and another one": func(t *testing.T, b *storetest.Bench, f record.Fence, stray *conn.Collection) int {
			if err := b.OverStray(t.Context(), f.Token, f.To, stray); err != nil {
				t.Fatal(err)
			}
			if err := b.Rename(t.Context(), "orders", f.To); err != nil {
				t.Fatal(err)
			}
			insertStray(t, b, another)
			return 1
		},
		"the kind has its name": func(t *testing.T, b *storetest.Bench, f record.Fence, stray *conn.Collection) int {
			if err := b.OverStray(t.Context(), f.Token, f.To, stray); err != nil {
				t.Fatal(err)
			}
			return 0
		},
		"a part was moved": func(t *testing.T, b *storetest.Bench, f record.Fence, stray *conn.Collection) int {
			if err := b.OverStray(t.Context(), f.Token, f.To, stray); err != nil {
				t.Fatal(err)
			}
			own := f.Token
			own.Name = "orders"
			moved, kept, err := b.MoveDocuments(t.Context(), own, "dbc_aside.orders."+stray.ID()[:12], bson.A{"s001", "s002"})
			if err != nil || moved != 2 || kept != 0 {
				t.Fatalf("%d moved, %d kept, %v", moved, kept, err)
			}
			// What the application deletes of it does not come back.
			if _, err := b.Raw.Collection("orders").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "s001"}}); err != nil {
				t.Fatal(err)
			}
			return -1
		},
	} {
		t.Run(step, func(t *testing.T) {
			b := storetest.NewBench(t)
			var docs []any
			for i := range 2*fences.StrayBatch + 50 {
				docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("s%03d", i)}})
			}
			f := strayed(t, b, docs...)
			if err := b.CloseFence(t.Context(), "orders", f.To); err != nil {
				t.Fatal(err)
			}
			stray, err := b.CollectionNamed(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			more := die(t, b, f, stray)
			for range 2 {
				if err := b.Unfence(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			// The command comes again, after everything.
			if err := b.OverStray(t.Context(), f.Token, f.To, stray); !conn.HasCode(err, conn.CodeNamespaceNotFound) {
				t.Errorf("late command: %v", err)
			}
			settled(t, b, f, 2+len(docs)+more, 0)
		})
	}
}

// TestUnfenceOverAView: a view that somebody has made in the place of the fence's holds no data.
func TestUnfenceOverAView(t *testing.T) {
	b := storetest.NewBench(t)
	f := record.Fence{Class: record.FenceView, Token: b.Fixed(t, "orders"), To: "orders.n1"}
	if err := b.Rename(t.Context(), "orders", f.To); err != nil {
		t.Fatal(err)
	}
	b.Run(t, bson.D{{Key: "create", Value: "orders"}, {Key: "viewOn", Value: "others"}})
	storetest.WantErr(t, b.Fence(t.Context(), f), record.ErrTaken)
	if err := b.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	settled(t, b, f, 2, 0)
}

// TestUnfenceOverAnotherKind: a collection that is a kind itself is never moved away.
func TestUnfenceOverAnotherKind(t *testing.T) {
	b := storetest.NewBench(t)
	f := strayed(t, b, bson.D{{Key: "_id", Value: "of the other"}})
	info, err := b.Describe(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Claim(t.Context(), info.Token, record.Owner{Deployment: "other", Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	storetest.WantErr(t, b.Unfence(t.Context(), f), record.ErrBroken)
	if got := b.Docs(t, "orders"); len(got) != 1 {
		t.Errorf("the other kind has %v", got)
	}
}

// TestOpenOverAStray: the view was removed, and the primary died before the kind had its name.
func TestOpenOverAStray(t *testing.T) {
	b := storetest.NewBench(t)
	f := record.Fence{Class: record.FenceView, Token: b.Fixed(t, "orders"), To: "orders.n1"}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	seal := record.Fence{Token: f.Token, To: "orders.n2"}
	seal.Token.Name = f.To
	if err := b.Fence(t.Context(), seal); err != nil {
		t.Fatal(err)
	}
	if err := applied(t, b, bson.A{b.UnviewOp("orders")}); err != nil {
		t.Fatal(err)
	}
	insertStray(t, b, bson.D{{Key: "_id", Value: "stray"}}, bson.D{{Key: "_id", Value: "two"}})
	open := record.Fence{Token: f.Token, To: "orders", Ends: f.To}
	open.Token.Name = seal.To
	for range 2 {
		var kept *record.KeptError
		if err := b.Fence(t.Context(), open); !errors.As(err, &kept) || kept.Kept[0].Count != 1 {
			t.Fatalf("error is %v", err)
		}
	}
	settled(t, b, f, 3, 1)
}
