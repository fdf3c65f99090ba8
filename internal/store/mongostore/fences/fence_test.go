package fences_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

func TestPrepareManagedIsUUID(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	class, restore, err := b.Prepare(t.Context(), tok, "")
	if err != nil || class != record.FenceUUID || restore != "" {
		t.Fatalf("got %q %q %v", class, restore, err)
	}
	for _, want := range []record.FenceClass{record.FenceView, record.FenceWriteBlock, record.FenceValidator, "moat"} {
		var unsupported *record.UnsupportedError
		if _, _, err := b.Prepare(t.Context(), tok, want); !errors.As(err, &unsupported) {
			t.Errorf("%s: error is %v, want it unsupported", want, err)
		}
	}
	b.NoScratch(t)
}

func TestFenceRefusesEveryStaleCommand(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	client, toks := b.Client(), record.Tokens{"things": tok}
	before := b.Docs(t, tok.Name)
	if err := b.Fence(t.Context(), storetest.Next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	writes := map[string][]record.Mutation{
		"create":  {storetest.Creation("d", 1)},
		"put":     {storetest.Replacement("a", 2)},
		"update":  {{Kind: "things", Key: record.StringKey("a"), Doc: storetest.Doc("a", 2), Exists: true}},
		"match":   {{Kind: "things", Key: record.StringKey("a"), Doc: storetest.Doc("a", 2), Match: &record.Match{Path: "n", Value: bson.RawValue{Type: bson.TypeInt32, Value: []byte{1, 0, 0, 0}}}}},
		"delete":  {storetest.Removal("a")},
		"several": {storetest.Replacement("a", 2), storetest.Removal("b"), storetest.Creation("d", 1)},
	}
	for name, ms := range writes {
		t.Run(name, func(t *testing.T) { storetest.WantErr(t, client.Write(t.Context(), toks, ms), record.ErrFenced) })
	}
	t.Run("get", func(t *testing.T) {
		_, err := client.Get(t.Context(), tok, record.StringKey("a"))
		storetest.WantErr(t, err, record.ErrFenced)
	})
	t.Run("list", func(t *testing.T) {
		_, err := client.List(t.Context(), record.ListRequest{Token: tok})
		storetest.WantErr(t, err, record.ErrFenced)
	})
	t.Run("split", func(t *testing.T) {
		_, err := b.Split(t.Context(), tok, 4)
		storetest.WantErr(t, err, record.ErrFenced)
	})
	t.Run("purge", func(t *testing.T) { storetest.WantErr(t, b.Purge(t.Context(), tok), record.ErrFenced) })
	t.Run("drop", func(t *testing.T) { storetest.WantErr(t, b.Drop(t.Context(), tok), record.ErrFenced) })

	after := b.Docs(t, "things.n2")
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("stale commands had an effect:\n%v\n%v", before, after)
	}
	for _, name := range b.AllNames(t) {
		if name == tok.Name {
			t.Errorf("%s exists again", name)
		}
	}
	tok.Name = "things.n2"
	if err := client.Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{storetest.Removal("a")}); err != nil {
		t.Fatalf("the new token: %v", err)
	}
}

func TestFenceIsIdempotentAndConcurrent(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	var g errgroup.Group
	for range 8 {
		g.Go(func() error { return b.Fence(t.Context(), storetest.Next(tok, "things.n2")) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(t.Context(), storetest.Next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "things.n2" {
		t.Fatalf("located %q, %v", name, err)
	}
	// On to the next name; then the first fence, sent again late, must report what it
	// found.
	moved := tok
	moved.Name = "things.n2"
	if err := b.Fence(t.Context(), storetest.Next(moved, "things.n3")); err != nil {
		t.Fatal(err)
	}
	storetest.WantErr(t, b.Fence(t.Context(), storetest.Next(tok, "things.n2")), record.ErrBroken)
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "things.n3" {
		t.Fatalf("located %q, %v", name, err)
	}
	if err := b.Unfence(t.Context(), storetest.Next(moved, "things.n3")); err != nil {
		t.Fatal(err)
	}
	if name, _ := b.Locate(t.Context(), tok.ID); name != "things.n3" {
		t.Fatal("unfence renamed a managed kind back")
	}
}

func TestFenceResolvesARenameThatHappenedAlready(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	rename := bson.D{
		{Key: "renameCollection", Value: b.Name + "." + tok.Name}, {Key: "to", Value: b.Name + ".things.n2"},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	}
	if err := b.Raw.Client().Database("admin").RunCommand(t.Context(), rename).Err(); err != nil {
		t.Fatal(err)
	}
	// Somebody without UUIDs makes the old name again: it must not be renamed in our place.
	b.Run(t, bson.D{{Key: "insert", Value: tok.Name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "stray"}}}}})
	if err := b.Fence(t.Context(), storetest.Next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	if got := len(b.Docs(t, "things.n2")); got != 3 {
		t.Fatalf("%d documents, want 3", got)
	}
}

func TestFenceErrorsAreClear(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	b.Run(t, bson.D{{Key: "create", Value: "things.n2"}})
	err := b.Fence(t.Context(), storetest.Next(tok, "things.n2"))
	if err == nil || !strings.Contains(err.Error(), "taken by another collection") {
		t.Fatalf("error is %v", err)
	}
	gone := tok
	gone.ID = strings.Repeat("0", 32)
	storetest.WantErr(t, b.Fence(t.Context(), storetest.Next(gone, "things.n5")), record.ErrBroken)
	_, err = b.Locate(t.Context(), gone.ID)
	storetest.WantErr(t, err, record.ErrNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	storetest.WantErr(t, b.Fence(ctx, storetest.Next(tok, "things.n3")), context.Canceled)
}

func TestFenceKillsOnlyTheTransactionsInItsWay(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	b.Run(t, bson.D{{Key: "create", Value: "elsewhere"}})
	victim, bystander := openTransaction(t, b, tok.Name, "late"), openTransaction(t, b, "elsewhere", "fine")
	start := time.Now()
	if err := b.Fence(t.Context(), storetest.Next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	t.Logf("fence with an open transaction in its way: %v", time.Since(start))
	if err := victim.CommitTransaction(t.Context()); !conn.HasCode(err, conn.CodeNoSuchTransaction) {
		t.Errorf("commit of the victim: %v", err)
	}
	if err := bystander.CommitTransaction(t.Context()); err != nil {
		t.Errorf("commit of the bystander: %v", err)
	}
	if got := len(b.Docs(t, "things.n2")); got != 3 {
		t.Errorf("%d documents, want 3", got)
	}
}

// TestFenceUnderFire is the barrier: whatever is acknowledged is there, and nothing
// changes after the fence has returned.
func TestFenceUnderFire(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	const writers = 16
	start := make(chan struct{})
	var wrote atomic.Int64
	live := make([]map[string]int, writers) // acknowledged, by writer
	var g errgroup.Group
	for w := range writers {
		live[w] = make(map[string]int)
		client := b.Client()
		g.Go(func() error {
			<-start
			for i := 0; ; i++ {
				name := fmt.Sprintf("w%02d-%04d", w, i)
				earlier := fmt.Sprintf("w%02d-%04d", w, i/2)
				var ms []record.Mutation
				switch i % 4 {
				case 0, 1:
					ms = []record.Mutation{storetest.Creation(name, i)}
				case 2:
					ms = []record.Mutation{storetest.Replacement(earlier, i)}
				case 3:
					ms = []record.Mutation{storetest.Creation(name, i), storetest.Removal(earlier)}
				}
				err := client.Write(t.Context(), record.Tokens{"things": tok}, ms)
				if errors.Is(err, record.ErrFenced) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("writer %d: %w", w, err)
				}
				wrote.Add(1)
				for _, m := range ms {
					id, _ := m.Key.Name()
					if m.Doc == nil {
						delete(live[w], id)
					} else {
						live[w][id] = i
					}
				}
			}
		})
	}
	close(start)
	storetest.WaitFor(t, func() bool { return wrote.Load() > 800 })
	began := time.Now()
	if err := b.Fence(t.Context(), storetest.Next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	atFence := b.Docs(t, "things.n2")
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	after := b.Docs(t, "things.n2")
	if fmt.Sprint(atFence) != fmt.Sprint(after) {
		t.Error("the collection changed after the fence")
	}
	want := map[string]int{"a": 1, "b": 1, "c": 1}
	for _, m := range live {
		maps.Copy(want, m)
	}
	got := make(map[string]int)
	for _, d := range after {
		got[d.Lookup("_id").StringValue()] = int(d.Lookup("n").AsInt64())
	}
	lost, extra := 0, 0
	for id, n := range want {
		if got[id] != n {
			lost++
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			extra++
		}
	}
	t.Logf("%d writes acknowledged, fence %v, %d documents: %d lost, %d extra", wrote.Load(), took, len(got), lost, extra)
	if lost+extra > 0 {
		t.Error("what is stored is not what was acknowledged")
	}
}
