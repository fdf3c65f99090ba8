package fences_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestUnfenceRestoresThePresentValidator: what counts is the validator that the fence found,
// not the one that Prepare saw days before.
func TestUnfenceRestoresThePresentValidator(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	_, restore, err := b.Prepare(t.Context(), tok, record.FenceValidator)
	if err != nil {
		t.Fatal(err)
	}
	spec := record.KindSpec{Name: "orders", Fixed: true}
	for turn, own := range []bson.D{
		{{Key: "n", Value: bson.D{{Key: "$gte", Value: 0}}}},
		{{Key: "n", Value: bson.D{{Key: "$gte", Value: 1}}}},
		{}, // removed since
	} {
		b.Run(t, bson.D{{Key: "collMod", Value: "orders"}, {Key: "validator", Value: own}, {Key: "validationAction", Value: "warn"}})
		before, err := b.Describe(t.Context(), spec, "orders")
		if err != nil {
			t.Fatal(err)
		}
		f := record.Fence{Class: record.FenceValidator, Token: tok, To: record.PhysicalName("orders", uint64(turn+1)), Restore: restore}
		for range 2 {
			if err := b.Fence(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		if err := writes["insert"](b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeValidation) {
			t.Errorf("turn %d: insert: %v", turn, err)
		}
		if err := b.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		after, err := b.Describe(t.Context(), spec, "orders")
		if err != nil || fmt.Sprint(after.Shape) != fmt.Sprint(before.Shape) {
			t.Errorf("turn %d: restored %v, %v, want %v", turn, after.Shape, err, before.Shape)
		}
	}
}

// TestLateViewCommands: commands of an attempt that was removed arrive after everything
// else, as those of a caller do that was stopped after its check. They have no effect.
func TestLateViewCommands(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Fixed(t, "orders")
	first := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n1"}
	second := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n2"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fenced := func() {
		t.Helper()
		at, err := b.CollectionNamed(t.Context(), "orders")
		must(err)
		if at == nil || at.FenceMark() != "orders.n2" {
			t.Fatalf("under the own name is %+v, want the second fence's view", at)
		}
		if err := writes["insert"](b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeViewWrite) {
			t.Fatalf("the application's insert: %v", err)
		}
	}
	// Stopped between its check and its command, while the fence is removed.
	must(b.OpenGate(t.Context(), first))
	must(b.Unfence(t.Context(), first))
	if _, err := b.ThroughGate(t.Context(), first); !conn.HasCode(err, conn.CodeNamespaceNotFound) {
		t.Fatalf("late fence: %v", err)
	}
	// Stopped before it made the gate.
	if err := b.OpenGate(t.Context(), first); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Fatalf("late gate: %v", err)
	}
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "orders" {
		t.Fatalf("located %q, %v", name, err)
	}

	must(b.Fence(t.Context(), second))
	fenced()
	if err := b.Unview(t.Context(), "orders", "orders.n1", "orders"); !conn.HasCode(err, conn.CodeNamespaceNotFound) {
		t.Errorf("late unfence: %v", err)
	}
	fenced()
	if _, err := b.ThroughGate(t.Context(), first); !conn.HasCode(err, conn.CodeNamespaceNotFound) {
		t.Errorf("late fence: %v", err)
	}
	storetest.WantErr(t, b.Unfence(t.Context(), first), record.ErrBroken) // as a whole: the name is not its own
	fenced()
	must(b.Unfence(t.Context(), second))
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "orders" {
		t.Fatalf("located %q, %v", name, err)
	}
	if got := len(b.Docs(t, "orders")); got != 2 {
		t.Errorf("%d documents, want 2", got)
	}
	for _, name := range b.AllNames(t) {
		if strings.HasPrefix(name, conn.GatePrefix) {
			t.Errorf("left behind: %s", name)
		}
	}
}

// TestLateRenameOverAView: the command that gave a hidden target its name comes again
// after a later fence has left its view there.
func TestLateRenameOverAView(t *testing.T) {
	b := storetest.NewBench(t)
	source := b.Fixed(t, "orders")
	if err := b.Fence(t.Context(), record.Fence{Class: record.FenceView, Token: source, To: "orders.n1"}); err != nil {
		t.Fatal(err)
	}
	target, err := b.Provision(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders.n2")
	if err != nil {
		t.Fatal(err)
	}
	reveal := record.Fence{Class: record.FenceView, Token: target, To: "orders"}
	if err := b.Fence(t.Context(), reveal); err != nil {
		t.Fatal(err)
	}
	target.Name = "orders"
	if err := b.Fence(t.Context(), record.Fence{Class: record.FenceView, Token: target, To: "orders.n3"}); err != nil {
		t.Fatal(err)
	}
	if err := b.RenameOverView(t.Context(), reveal); !conn.HasCode(err, conn.CodeNamespaceNotFound) {
		t.Errorf("late rename: %v", err)
	}
	if err := writes["insert"](b.Raw.Collection("orders"), t); !conn.HasCode(err, conn.CodeViewWrite) {
		t.Errorf("the application's insert: %v", err)
	}
}

// TestWatchStrayCollection: another collection under the name of a fixed kind that a
// fence moved away is not the kind; the kind that comes back is.
func TestWatchStrayCollection(t *testing.T) {
	b := storetest.NewBench(t)
	e := &storetest.Engine{T: t, NS: b.Namespace}
	tok := b.Fixed(t, "orders")
	from := e.Position()
	s := e.Watch(from, record.KindSpec{Name: "orders", Fixed: true})
	f := record.Fence{Class: record.FenceView, Token: tok, To: "orders.n1"}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := b.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	b.Run(t, bson.D{{Key: "insert", Value: "orders"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "back"}}}}})
	e.Until(s, func(c record.Change) bool { return c.Key == record.StringKey("back") })

	f.To = "orders.n2"
	if err := b.Rename(t.Context(), "orders", f.To); err != nil { // the view is missing
		t.Fatal(err)
	}
	// What is in the kind already does not come from the stray.
	insertStray(t, b, bson.D{{Key: "_id", Value: "stray"}}, bson.D{{Key: "_id", Value: "two"}})
	var kept *record.KeptError
	if err := b.Unfence(t.Context(), f); !errors.As(err, &kept) {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("orders").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "back"}}); err != nil {
		t.Fatal(err)
	}
	want := []record.Change{
		{Kind: "orders", Marker: "orders.n2"}, {Kind: "orders", Marker: "orders"},
		{Kind: "orders", Key: record.StringKey("stray")},
		{Kind: "orders", Key: record.StringKey("back"), Delete: true},
	}
	for _, s := range []record.Stream{s, e.Watch(from, record.KindSpec{Name: "orders", Fixed: true})} {
		changes := e.Until(s, func(c record.Change) bool { return c.Delete })
		if got := changes[max(0, len(changes)-len(want)):]; !slices.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
	}
}

// TestWatchWriteBlockMarker: a write block, which no collection shows, arrives as the
// marker of its kind, after every write that was acknowledged before it.
func TestWatchWriteBlockMarker(t *testing.T) {
	srv := storetest.Start(t, localmongo.Options{Auth: true, Own: true})
	b := storetest.BenchAt(t, srv.URI(), "app")
	e := &storetest.Engine{T: t, NS: b.Namespace}
	tok := b.Fixed(t, "orders")
	b.Fixed(t, "bills")
	s := e.Watch(e.Position(), record.KindSpec{Name: "orders", Fixed: true}, record.KindSpec{Name: "things"})
	class, restore, err := b.Prepare(t.Context(), tok, record.FenceWriteBlock)
	if err != nil || class != record.FenceWriteBlock {
		t.Fatalf("%s, %v", class, err)
	}
	b.Run(t, bson.D{{Key: "insert", Value: "orders"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "last"}}}}})
	f := record.Fence{Class: class, Token: tok, To: "orders.n1", Restore: restore}
	for range 2 { // the mark is inserted, then updated
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	// Marks of what this stream does not follow, or by other classes, mean nothing.
	for _, other := range []record.Fence{
		{Class: class, Token: record.Token{Kind: "bills", Name: "bills"}, To: "bills.n1"},
		{Class: class, Token: record.Token{Kind: "things", Name: "things.n1"}, To: "things.n2"},
		{Class: record.FenceView, Token: tok, To: "orders.n2"},
		{Class: record.FenceView, Token: tok, To: "orders.n1"},
	} {
		if err := b.Mark(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	b.Run(t, bson.D{{Key: "insert", Value: "orders"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "free"}}}}})
	got := e.Until(s, func(c record.Change) bool { return c.Key == record.StringKey("free") })
	want := []record.Change{
		{Kind: "orders", Key: record.StringKey("last")},
		{Kind: "orders", Marker: "orders.n1"}, {Kind: "orders", Marker: "orders.n1"},
		{Kind: "orders", Key: record.StringKey("free")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestFixedKindsNeedCollectionUUID: the stable API refuses collectionUUID, as servers that
// do not have it would.
func TestFixedKindsNeedCollectionUUID(t *testing.T) {
	uri, name := mongotest.Database(t)
	b := storetest.BenchAt(t, uri, name)
	tok := b.Fixed(t, "orders")
	client, err := mongo.Connect(options.Client().ApplyURI(uri).
		SetServerAPIOptions(options.ServerAPI(options.ServerAPIVersion1).SetStrict(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	strict := storetest.NewNamespace(client, name, "test", zaptest.NewLogger(t))
	for _, want := range []record.FenceClass{"", record.FenceView, record.FenceValidator, record.FenceWriteBlock} {
		var unsupported *record.UnsupportedError
		if _, _, err := strict.Prepare(t.Context(), tok, want); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "collection UUID") {
			t.Errorf("want %q: %v", want, err)
		}
	}
	tok.ID = ""
	if _, _, err := b.Prepare(t.Context(), tok, ""); err == nil || !strings.Contains(err.Error(), "no collection UUID") {
		t.Errorf("token without UUID: %v", err)
	}
	b.NoScratch(t)
}
