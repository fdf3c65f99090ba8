package fences_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestWatchReplaced: whatever puts another collection in the place of an application's, or none,
// ends a stream with the kind that it happened to, after the changes before it.
func TestWatchReplaced(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	at := e.Position()
	watch := func() record.Stream {
		return e.Watch(at, record.KindSpec{Name: "f", Fixed: true}, record.KindSpec{Name: "m"})
	}
	for name, act := range map[string]func() error{
		"drop":        func() error { return e.NS.DB.Collection("f").Drop(t.Context()) },
		"rename away": func() error { e.Rename("f", "f_old"); return e.NS.DB.Collection("f_old").Drop(t.Context()) },
		"swap": func() error {
			e.Collection("f", "f_new", true)
			return e.NS.Mongo.Database("admin").RunCommand(t.Context(), bson.D{
				{Key: "renameCollection", Value: e.NS.Name + ".f_new"}, {Key: "to", Value: e.NS.Name + ".f"}, {Key: "dropTarget", Value: true},
			}).Err()
		},
		"$out": func() error {
			e.Insert(e.Collection("from", "from", true), bson.D{{Key: "_id", Value: "out"}})
			cursor, err := e.NS.DB.Collection("from").Aggregate(t.Context(), mongo.Pipeline{{{Key: "$out", Value: "f"}}})
			if err != nil {
				return err
			}
			return errors.Join(cursor.Close(t.Context()), e.NS.DB.Collection("from").Drop(t.Context()))
		},
	} {
		_ = e.NS.DB.Collection("f").Drop(t.Context())
		e.Insert(e.Collection("f", "f", true), bson.D{{Key: "_id", Value: name}})
		at = e.Position()
		e.Insert(record.Token{Name: "f"}, bson.D{{Key: "_id", Value: name + " before"}})
		if err := act(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := watch()
		changes := 0
		var replaced *record.ReplacedError
		for {
			batch, err := s.Next(e.Ctx())
			changes += len(batch.Changes)
			if errors.As(err, &replaced) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if replaced.Kind != "f" || changes != 1 || !errors.Is(replaced, record.ErrBroken) {
			t.Errorf("%s: %d changes, then %v", name, changes, replaced)
		}
	}
	managed := e.Managed("m")
	at = e.Position()
	e.Rename(managed.Name, "stolen")
	s := watch()
	for {
		if _, err := s.Next(e.Ctx()); err != nil {
			if replaced := new(record.ReplacedError); errors.As(err, &replaced) || !errors.Is(err, record.ErrBroken) {
				t.Errorf("a managed kind: %v", err)
			}
			return
		}
	}
}

// TestOccupiedNameIsNoReplacement: an aborted attempt leaves an empty collection under a name of the
// kind. It never counts as the kind's collection, and hides no collection that the cluster recreated.
func TestOccupiedNameIsNoReplacement(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	if err := e.NS.Claim(t.Context(), tok, record.Owner{Deployment: "services/a/deployments/x", Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	f := record.Fence{Token: tok, To: record.PhysicalName("m", 9), Class: record.FenceUUID}
	if moved, err := e.NS.Prevent(t.Context(), f); moved || err != nil {
		t.Fatalf("moved %v, %v", moved, err)
	}
	instead := func(want string) {
		t.Helper()
		all, err := e.NS.Claims(t.Context())
		if err != nil || len(all) != 1 || all[0].Name != "" || all[0].Instead != want {
			t.Errorf("claims %+v, %v, want %q instead", all, err, want)
		}
	}
	if err := e.Coll(tok).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	instead("")
	instead(e.Collection("m", tok.Name, false).ID)
}

// TestClaimFollowsTheName: the claim of a fixed-name kind goes with its name, and back, and to no
// collection that does not bear it.
func TestClaimFollowsTheName(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	mine := record.Owner{Deployment: "services/a/deployments/x", Version: "v1"}
	claim := func(tok record.Token) error { tok.Name = "f"; return e.NS.Claim(t.Context(), tok, mine) }
	claimed := func() record.Claim {
		t.Helper()
		all, err := e.NS.Claims(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("claims %+v, %v", all, err)
		}
		return all[0]
	}
	first, second := e.Collection("f", "f", true), e.Collection("f", "f_new", true)
	if err := claim(first); err != nil {
		t.Fatal(err)
	}
	if err := claim(second); !errors.Is(err, record.ErrMismatch) || claimed().ID != first.ID {
		t.Errorf("a collection that does not bear the name: %v, %+v", err, claimed())
	}
	e.Rename("f", "f_old")
	if c := claimed(); c.ID != first.ID || c.Name != "f_old" || c.Bearer != "" {
		t.Errorf("away: %+v", c)
	}
	e.Rename("f_new", "f")
	if c := claimed(); c.ID != first.ID || c.Name != "f_old" || c.Bearer != second.ID {
		t.Errorf("swapped: %+v", c)
	}
	for range 2 {
		if err := claim(second); err != nil {
			t.Fatal(err)
		}
	}
	if c := claimed(); c.ID != second.ID || c.Name != "f" {
		t.Errorf("taken: %+v", c)
	}
	e.Rename("f", "f_new")
	e.Rename("f_old", "f")
	if err := claim(first); err != nil || claimed().ID != first.ID {
		t.Errorf("swapped back: %v, %+v", err, claimed())
	}
	theirs := record.Owner{Deployment: "services/b/deployments/x", Version: "v1"}
	e.Rename("f", "f_old")
	e.Rename("f_new", "f")
	second.Name = "f"
	var owned *record.OwnedError
	if err := e.NS.Claim(t.Context(), second, theirs); !errors.As(err, &owned) || claimed().ID != first.ID {
		t.Errorf("another deployment takes it: %v, %+v", err, claimed())
	}
}

// TestUnfenceOfAReplacedCollection: an abort ends although the collection that a fence was
// announced for, or set on, is not under its name any longer. The fence cannot come later, and a
// validator that went with the collection is taken away.
func TestUnfenceOfAReplacedCollection(t *testing.T) {
	t.Parallel()
	for _, class := range []record.FenceClass{record.FenceView, record.FenceValidator} {
		for name, replace := range map[string]func(b *storetest.Bench) error{
			"dropped": func(b *storetest.Bench) error { return b.Raw.Collection("orders").Drop(t.Context()) },
			"dropped and made anew": func(b *storetest.Bench) error {
				return errors.Join(b.Raw.Collection("orders").Drop(t.Context()), b.Raw.CreateCollection(t.Context(), "orders"))
			},
			"moved by its cluster, options and all": func(b *storetest.Bench) error {
				specs, err := b.Raw.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: "orders"}})
				if err != nil {
					return err
				}
				create := bson.D{{Key: "create", Value: "orders"}}
				if v := specs[0].Options.Lookup("validator"); v.Type != 0 {
					create = append(create, bson.E{Key: "validator", Value: v})
				}
				return errors.Join(b.Raw.Collection("orders").Drop(t.Context()), b.Raw.RunCommand(t.Context(), create).Err())
			},
			"swapped": func(b *storetest.Bench) error {
				return errors.Join(b.Namespace.Rename(t.Context(), "orders", "orders_old"), b.Raw.CreateCollection(t.Context(), "orders"))
			},
		} {
			t.Run(string(class)+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := storetest.NewBench(t)
				f := record.Fence{Class: class, Token: b.Fixed(t, "orders"), To: "orders.n1"}
				if class == record.FenceValidator { // a view cannot be swapped
					if err := b.Fence(t.Context(), f); err != nil {
						t.Fatal(err)
					}
				}
				if err := replace(b); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := b.Unfence(t.Context(), f); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Fence(t.Context(), f); err == nil {
					t.Error("the fence was set after it was removed")
				}
				if name != "dropped" {
					if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "new"}}); err != nil {
						t.Errorf("the collection that has the name is fenced: %v", err)
					}
				}
				if name == "swapped" {
					if _, err := b.Raw.Collection("orders_old").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "back"}}); err != nil {
						t.Errorf("what was swapped away is fenced still: %v", err)
					}
				}
			})
		}
	}
}

// TestPrepareOfACopyOfAnEndedFence: $out takes the options of the fenced collection along, and takes
// its place only after the fence has ended. The new one is given back once it is looked at.
func TestPrepareOfACopyOfAnEndedFence(t *testing.T) {
	t.Parallel()
	b := storetest.NewBench(t)
	tok, made := b.Fixed(t, "orders"), b.Fixed(t, "made")
	made.Kind = tok.Kind
	has := func(collection string, validator any) {
		t.Helper()
		if err := b.Raw.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: collection}, {Key: "validator", Value: validator}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	has("orders", bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: int32(0)}}}})
	f := record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n1"}
	_, restore, err := b.Prepare(t.Context(), tok, record.FenceValidator)
	if err != nil {
		t.Fatal(err)
	}
	f.Restore = restore
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	specs, err := b.Raw.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: "orders"}})
	if err != nil {
		t.Fatal(err)
	}
	has("made", specs[0].Options.Lookup("validator"))
	if _, _, err := b.Prepare(t.Context(), made, record.FenceValidator); err == nil {
		t.Error("a copy of a fence that stands is taken for none")
	}
	if err := errors.Join(b.Unfence(t.Context(), f), b.Raw.Collection("orders").Drop(t.Context()), b.Namespace.Rename(t.Context(), "made", "orders")); err != nil {
		t.Fatal(err)
	}
	made.Name = "orders"
	for range 2 {
		if _, again, err := b.Prepare(t.Context(), made, record.FenceValidator); err != nil || again != restore {
			t.Fatalf("prepared: %q, %v, want %q", again, err, restore)
		}
	}
	if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "n", Value: int32(1)}}); err != nil {
		t.Errorf("it is fenced still: %v", err)
	}
	if _, err := b.Raw.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "n", Value: int32(-1)}}); err == nil {
		t.Error("its validator is gone")
	}
}

// TestFenceOfAMovedCollection: the cluster moved a collection of a version that was left, fence and
// all, and it was taken for the one before. What the fence has to give back is known still.
func TestFenceOfAMovedCollection(t *testing.T) {
	t.Parallel()
	b := storetest.NewBench(t)
	owner := record.Owner{Deployment: "services/a/deployments/x", Version: "v1"}
	tok := b.Fixed(t, "orders")
	own := bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: 0}}}}
	b.Run(t, bson.D{{Key: "collMod", Value: "orders"}, {Key: "validator", Value: own}})
	if err := b.Claim(t.Context(), tok, owner); err != nil {
		t.Fatal(err)
	}
	f := record.Fence{Class: record.FenceValidator, Token: tok, To: "orders.n1"}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	specs, err := b.Raw.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: "orders"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Raw.Collection("orders").Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Run(t, bson.D{{Key: "create", Value: "orders"}, {Key: "validator", Value: specs[0].Options.Lookup("validator")}})
	c, err := b.CollectionNamed(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	moved := record.Token{Kind: "orders", Name: "orders", ID: c.ID(), Fixed: true}
	for range 2 {
		if err := b.Claim(t.Context(), moved, owner); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Describe(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := b.Unfence(t.Context(), record.Fence{Class: record.FenceValidator, Token: moved, To: "orders.n1"}); err != nil {
		t.Fatal(err)
	}
	orders := b.Raw.Collection("orders")
	if _, err := orders.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "good"}, {Key: "n", Value: 1}}); err != nil {
		t.Errorf("it is fenced still: %v", err)
	}
	if _, err := orders.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "bad"}, {Key: "n", Value: -1}}); !conn.HasCode(err, conn.CodeValidation) {
		t.Errorf("its own validator is not back: %v", err)
	}
}
