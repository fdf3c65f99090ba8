package fences_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

func TestPrepareFixed(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	for want, expect := range map[record.FenceClass]record.FenceClass{
		"":                    record.FenceView,
		record.FenceView:      record.FenceView,
		record.FenceValidator: record.FenceValidator,
	} {
		if got, _, err := b.Prepare(t.Context(), tok, want); err != nil || got != expect {
			t.Errorf("want %q: got %q, %v", want, got, err)
		}
	}
	// Without access control nobody could go on writing behind a write block.
	for _, want := range []record.FenceClass{record.FenceUUID, record.FenceWriteBlock} {
		var unsupported *record.UnsupportedError
		if _, _, err := b.Prepare(t.Context(), tok, want); !errors.As(err, &unsupported) {
			t.Errorf("want %q: error is %v", want, err)
		}
	}
	b.NoScratch(t)
}

// writes are the ways in which an application changes a collection.
var writes = map[string]func(c *mongo.Collection, t *testing.T) error{
	"insert": func(c *mongo.Collection, t *testing.T) error {
		_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "late"}})
		return err
	},
	"update": func(c *mongo.Collection, t *testing.T) error {
		_, err := c.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 9}}}})
		return err
	},
	"find and modify": func(c *mongo.Collection, t *testing.T) error {
		return c.FindOneAndUpdate(t.Context(), bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 9}}}}).Err()
	},
	"delete": func(c *mongo.Collection, t *testing.T) error {
		_, err := c.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "two"}})
		return err
	},
}

func TestViewFenceStopsTheApplication(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	f := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n1"}
	before := b.Docs(t, "orders")
	var g errgroup.Group
	for range 4 {
		g.Go(func() error { return b.Fence(t.Context(), f) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, write := range writes {
		if err := write(b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeViewWrite) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.Docs(t, "orders"); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("through the old name %v, want %v", got, before)
	}
	_, err := b.Describe(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders")
	var refused *record.UnsupportedError
	if !errors.As(err, &refused) || !refused.Fence || !strings.Contains(err.Error(), "orders.n1") {
		t.Errorf("describe of the view: %v", err)
	}

	// Given back by several at once, and again: nothing is lost.
	for range 4 {
		g.Go(func() error { return b.Unfence(t.Context(), f) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := b.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "orders" {
		t.Fatalf("located %q, %v", name, err)
	}
	for name, write := range writes {
		if err := write(b.Raw.Collection("orders"), t); err != nil {
			t.Errorf("%s after unfence: %v", name, err)
		}
	}
	// A fence that comes late does not take it away again; the next attempt may.
	if err := b.Fence(t.Context(), f); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("late fence: %v", err)
	}
	f.To = "orders.n2"
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	b.NoScratch(t)
}

// TestViewFenceAndUnfenceUnderFire: acknowledged inserts are all in the one collection, and
// no gap lets one make a collection of its own.
func TestViewFenceAndUnfenceUnderFire(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	const writers, turns = 16, 6
	stop := make(chan struct{})
	acked := make([][]string, writers)
	var inserts, refusals atomic.Int64
	var g errgroup.Group
	for w := range writers {
		g.Go(func() error {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				default:
				}
				id := fmt.Sprintf("w%02d-%05d", w, i)
				_, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
				switch {
				case err == nil:
					acked[w] = append(acked[w], id)
					inserts.Add(1)
				case conn.HasCode(err, conn.CodeViewWrite):
					refusals.Add(1)
				default:
					return err
				}
			}
		})
	}
	for turn := range turns {
		at := inserts.Load()
		storetest.WaitFor(t, func() bool { return inserts.Load() > at+100 })
		f := record.Fence{Class: record.FenceView, Token: tok, To: record.PhysicalName("orders", uint64(turn+1))}
		start := time.Now()
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		fenced := time.Since(start)
		frozen, err := b.Raw.Collection(f.To).CountDocuments(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		at = refusals.Load()
		storetest.WaitFor(t, func() bool { return refusals.Load() > at+100 })
		if now, _ := b.Raw.Collection(f.To).CountDocuments(t.Context(), bson.D{}); now != frozen {
			t.Errorf("turn %d: %d documents came late", turn, now-frozen)
		}
		start = time.Now()
		if err := b.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		t.Logf("turn %d: fence %v, unfence %v", turn, fenced, time.Since(start))
	}
	close(stop)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "orders" {
		t.Fatalf("located %q, %v", name, err)
	}
	have := make(map[string]bool)
	for _, d := range b.Docs(t, "orders") {
		if id, ok := d.Lookup("_id").StringValueOK(); ok {
			have[id] = true
		}
	}
	lost := 0
	for _, ids := range acked {
		for _, id := range ids {
			if !have[id] {
				lost++
			}
		}
	}
	t.Logf("%d acknowledged inserts, %d refused, %d lost", inserts.Load(), refusals.Load(), lost)
	if lost > 0 || len(have) != int(inserts.Load())+1 {
		t.Errorf("%d lost; %d documents, want %d", lost, len(have), inserts.Load()+1)
	}
	b.NoScratch(t)
}

// A primary that dies between the two operations of an applyOps leaves a rename without
// a view; who fences again completes it, unless the application was quicker.
func TestViewFenceIsCompleted(t *testing.T) {
	b := storetest.NewBench(t)
	for _, name := range []string{"orders", "bills"} {
		tok := b.Fixed(t, name)
		f := record.Fence{Class: record.FenceView, Token: tok, To: name + ".n1"}
		if err := b.Rename(t.Context(), name, f.To); err != nil {
			t.Fatal(err)
		}
		if name == "bills" {
			b.Run(t, bson.D{{Key: "insert", Value: name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "stray"}}}}})
			for range 2 {
				storetest.WantErr(t, b.Fence(t.Context(), f), record.ErrTaken)
			}
			if len(b.Docs(t, name)) != 1 || len(b.Docs(t, f.To)) != 2 {
				t.Error("documents are lost")
			}
			if err := b.Unfence(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if len(b.Docs(t, name)) != 3 {
				t.Error("documents are lost")
			}
			continue
		}
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if err := writes["insert"](b.Raw.Collection(name), t); !conn.HasCode(err, conn.CodeViewWrite) {
			t.Errorf("insert: %v", err)
		}
		if err := b.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
}

// A hidden target takes the name that the view of the source's fence bears.
func TestHiddenTargetTakesTheNameOfAView(t *testing.T) {
	b := storetest.NewBench(t)
	source := b.Fixed(t, "orders")
	if err := b.Fence(t.Context(), record.Fence{Class: record.FenceView, Token: source, To: "orders.n1"}); err != nil {
		t.Fatal(err)
	}
	target, err := b.Provision(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders.n2")
	if err != nil {
		t.Fatal(err)
	}
	b.Run(t, bson.D{{Key: "insert", Value: "orders.n2"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "new"}}}}})
	f := record.Fence{Class: record.FenceView, Token: target, To: "orders"}
	for range 2 {
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.Docs(t, "orders"); len(got) != 1 || got[0].Lookup("_id").StringValue() != "new" {
		t.Errorf("the application finds %v", got)
	}
	if err := writes["insert"](b.Raw.Collection("orders"), t); err != nil {
		t.Error(err)
	}
}

func TestValidatorFence(t *testing.T) {
	own := bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: 0}}}}
	cases := map[string][]bson.E{
		"none":     nil,
		"warning":  {{Key: "validator", Value: own}, {Key: "validationAction", Value: "warn"}},
		"moderate": {{Key: "validator", Value: own}, {Key: "validationLevel", Value: "moderate"}},
		"schema": {{Key: "validator", Value: bson.D{{Key: "$jsonSchema", Value: bson.D{
			{Key: "properties", Value: bson.D{{Key: "n", Value: bson.D{{Key: "bsonType", Value: "int"}, {Key: "minimum", Value: 0}}}}}}}}}},
	}
	for name, options := range cases {
		t.Run(name, func(t *testing.T) {
			b := storetest.NewBench(t)
			tok := b.Fixed(t, "orders", options...)
			spec := record.KindSpec{Name: "orders", Fixed: true}
			before, err := b.Describe(t.Context(), spec, "orders")
			if err != nil {
				t.Fatal(err)
			}
			class, restore, err := b.Prepare(t.Context(), tok, record.FenceValidator)
			if err != nil || class != record.FenceValidator {
				t.Fatalf("%s, %v", class, err)
			}
			f := record.Fence{Class: class, Token: tok, To: "orders.n1", Restore: restore}
			if f.Renames() {
				t.Error("a validator does not rename")
			}
			for range 2 {
				if err := b.Fence(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			for what, write := range writes {
				err := write(b.Raw.Collection("orders"), t)
				if what == "delete" {
					if err != nil {
						t.Errorf("delete: %v", err)
					}
				} else if !conn.HasCode(err, conn.CodeValidation) {
					t.Errorf("%s: %v", what, err)
				}
			}
			// While it is fenced, Prepare and Describe know what it was.
			if _, again, err := b.Prepare(t.Context(), tok, record.FenceValidator); err != nil || again != restore {
				t.Errorf("prepare of the fenced: %q, %v, want %q", again, err, restore)
			}
			if info, err := b.Describe(t.Context(), spec, "orders"); err != nil || fmt.Sprint(info.Shape) != fmt.Sprint(before.Shape) {
				t.Errorf("describe of the fenced: %v, %v", info.Shape, err)
			}
			for range 2 {
				if err := b.Unfence(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			}
			after, err := b.Describe(t.Context(), spec, "orders")
			if err != nil || fmt.Sprint(after.Shape) != fmt.Sprint(before.Shape) {
				t.Errorf("restored %v, %v, want %v", after.Shape, err, before.Shape)
			}
			if err := writes["insert"](b.Raw.Collection("orders"), t); name == "none" && err != nil {
				t.Error(err)
			}
			_, err = b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "n", Value: -1}})
			if refused := conn.HasCode(err, conn.CodeValidation); refused != (name == "schema" || name == "moderate") {
				t.Errorf("insert of what the own validator minds: %v", err)
			}
			if err := b.Fence(t.Context(), f); err == nil {
				t.Error("a removed fence was taken up again")
			}
		})
	}
}

func TestValidatorFenceKillsOpenTransactions(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	s, err := b.Raw.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.EndSession(t.Context())
	if err := s.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("orders").InsertOne(mongo.NewSessionContext(t.Context(), s), bson.D{{Key: "_id", Value: "late"}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(t.Context(), record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.CommitTransaction(t.Context()); !conn.HasCode(err, conn.CodeNoSuchTransaction) {
		t.Errorf("commit: %v", err)
	}
	if got := len(b.Docs(t, "orders")); got != 2 {
		t.Errorf("%d documents, want 2", got)
	}
}
