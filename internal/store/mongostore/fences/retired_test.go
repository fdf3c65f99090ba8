package fences_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// forgotten makes sure that an application which still uses a name gets errors, and that they
// say why.
func forgotten(t *testing.T, b *storetest.Bench, name, said string) {
	t.Helper()
	c := b.Raw.Collection(name)
	_, found := c.Find(t.Context(), bson.D{{Key: "_id", Value: 7}})
	_, counted := c.CountDocuments(t.Context(), bson.D{})
	_, estimated := c.EstimatedDocumentCount(t.Context())
	_, aggregated := c.Aggregate(t.Context(), bson.A{bson.D{{Key: "$limit", Value: 1}}})
	distinct := c.Distinct(t.Context(), "a", bson.D{}).Err()
	for what, err := range map[string]error{"find": found, "count": counted, "estimate": estimated, "aggregate": aggregated, "distinct": distinct} {
		if !conn.HasCode(err, 241) || !strings.Contains(err.Error(), said) {
			t.Errorf("%s of %s: %v", what, name, err)
		}
	}
	for what, write := range writes {
		if err := write(c, t); !conn.HasCode(err, conn.CodeViewWrite) {
			t.Errorf("%s in %s: %v", what, name, err)
		}
	}
}

// TestCloseName: of each class, a version that was left is completed.
func TestCloseName(t *testing.T) {
	const said = "v1 was completed"
	for _, class := range []record.FenceClass{record.FenceView, record.FenceValidator} {
		t.Run(string(class), func(t *testing.T) {
			b := storetest.NewBench(t)
			tok := b.Fixed(t, "orders")
			f := record.Fence{Class: class, Token: tok, To: "orders.n1"}
			if err := b.Fence(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			upheld := f
			if class == record.FenceView {
				f.Token.Name = f.To
			}
			upheld.Token = f.Token
			f.Ends, f.To = f.To, "dbc_retired.v1.orders"
			closeName := func(known ...string) []record.Breach {
				t.Helper()
				found, err := b.CloseName(t.Context(), f, said, known)
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			if found := closeName(); len(found) != 0 {
				t.Errorf("found %+v", found)
			}
			if class == record.FenceView {
				forgotten(t, b, "orders", said) // before the collection goes
			}
			away := record.Fence{Class: record.FenceUUID, Token: f.Token, To: f.To}
			if err := b.Fence(t.Context(), away); err != nil {
				t.Fatal(err)
			}
			strays := 0
			if class == record.FenceValidator {
				// In the moment in which the name is free.
				if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "stray"}}); err != nil {
					t.Fatal(err)
				}
				strays = 1
			}
			for range 2 {
				found := closeName()
				if len(found) != strays {
					t.Fatalf("found %+v", found)
				}
				for _, s := range found {
					if s.Count != 1 || len(b.Docs(t, s.Aside)) != 1 || !strings.Contains(s.What, "received 1 documents that no version has") {
						t.Errorf("set aside: %+v", s)
					}
				}
				forgotten(t, b, "orders", said)
			}
			if class == record.FenceView {
				// Somebody who slept since the fence stood, and upholds it.
				if _, err := b.Uphold(t.Context(), upheld, nil); err != nil && !errors.Is(err, record.ErrBroken) {
					t.Error(err)
				}
				forgotten(t, b, "orders", said)
			}

			// A later version takes the name.
			if _, err := b.Describe(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders"); err == nil || !strings.Contains(err.Error(), "the view that 'complete' left") {
				t.Errorf("described as %v", err)
			}
			next, err := b.Provision(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders.n5")
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Fence(t.Context(), record.Fence{Class: record.FenceView, Token: next, To: "orders"}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{}); err != nil {
				t.Errorf("the later version's insert: %v", err)
			}
			// What is asked for again too late leaves it alone.
			closeName(next.ID)
			if n, err := b.Raw.Collection("orders").CountDocuments(t.Context(), bson.D{}); err != nil || n != 1 {
				t.Errorf("the later version has %d documents, %v", n, err)
			}
		})
	}
}

// TestOpenTransactionsAndTheEndOfAVersion: a client has left a transaction open, under the name of
// a completed version or on a collection that is dropped. It is ended long before the server does.
func TestOpenTransactionsAndTheEndOfAVersion(t *testing.T) {
	validator := func(b *storetest.Bench, ctx context.Context, tok record.Token) error {
		_, err := b.CloseName(ctx, record.Fence{Class: record.FenceValidator, Token: tok, To: "dbc_retired.v1.orders"}, "v1 was completed", nil)
		return err
	}
	for _, tc := range []struct {
		name  string
		stray bool // somebody made a collection under the name that is free
		away  bool // the version's collection was set aside
		act   func(b *storetest.Bench, ctx context.Context, tok record.Token) error
	}{
		{"made in it", false, true, validator},
		{"made before it", true, true, validator},
		{"drop", false, false, func(b *storetest.Bench, ctx context.Context, tok record.Token) error { return b.Drop(ctx, tok) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := storetest.NewBench(t)
			tok := b.Fixed(t, "orders")
			if tc.away {
				if err := b.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: tok, To: "dbc_retired.v1.orders"}); err != nil {
					t.Fatal(err)
				}
			}
			if tc.stray {
				b.Run(t, bson.D{{Key: "create", Value: "orders"}})
			}
			s, err := b.Raw.Client().StartSession()
			if err != nil {
				t.Fatal(err)
			}
			defer s.EndSession(context.WithoutCancel(t.Context()))
			if err := s.StartTransaction(); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Raw.Collection("orders").InsertOne(mongo.NewSessionContext(t.Context(), s), bson.D{{Key: "_id", Value: "open"}}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // the server ends it after 60
			defer cancel()
			if err := tc.act(b, ctx, tok); err != nil {
				t.Fatal(err)
			}
			if err := s.CommitTransaction(t.Context()); !conn.HasCode(err, conn.CodeNoSuchTransaction, conn.CodeNamespaceExists) {
				t.Errorf("commit: %v", err)
			}
		})
	}
}
