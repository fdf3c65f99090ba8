package mongostore

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
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

func TestPrepareManagedIsUUID(t *testing.T) {
	b := newBench(t)
	tok := b.managed(t, record.Shape{})
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
	b.noScratch(t)
}

func TestFenceRefusesEveryStaleCommand(t *testing.T) {
	b := newBench(t)
	tok := b.managed(t, record.Shape{})
	client, toks := b.Client(), record.Tokens{"things": tok}
	before := b.docs(t, tok.Name)
	if err := b.Fence(t.Context(), next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	writes := map[string][]record.Mutation{
		"create":  {creation("d", 1)},
		"put":     {replacement("a", 2)},
		"update":  {{Kind: "things", Key: record.StringKey("a"), Doc: doc("a", 2), Exists: true}},
		"match":   {{Kind: "things", Key: record.StringKey("a"), Doc: doc("a", 2), Match: &record.Match{Path: "n", Value: bson.RawValue{Type: bson.TypeInt32, Value: []byte{1, 0, 0, 0}}}}},
		"delete":  {removal("a")},
		"several": {replacement("a", 2), removal("b"), creation("d", 1)},
	}
	for name, ms := range writes {
		t.Run(name, func(t *testing.T) { wantErr(t, client.Write(t.Context(), toks, ms), record.ErrFenced) })
	}
	t.Run("get", func(t *testing.T) {
		_, err := client.Get(t.Context(), tok, record.StringKey("a"))
		wantErr(t, err, record.ErrFenced)
	})
	t.Run("list", func(t *testing.T) {
		_, err := client.List(t.Context(), record.ListRequest{Token: tok})
		wantErr(t, err, record.ErrFenced)
	})
	t.Run("split", func(t *testing.T) {
		_, err := b.Split(t.Context(), tok, 4)
		wantErr(t, err, record.ErrFenced)
	})
	t.Run("purge", func(t *testing.T) { wantErr(t, b.Purge(t.Context(), tok), record.ErrFenced) })
	t.Run("drop", func(t *testing.T) { wantErr(t, b.Drop(t.Context(), tok), record.ErrFenced) })

	after := b.docs(t, "things.n2")
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("stale commands had an effect:\n%v\n%v", before, after)
	}
	for _, name := range b.names(t) {
		if name == tok.Name {
			t.Errorf("%s exists again", name)
		}
	}
	tok.Name = "things.n2"
	if err := client.Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{removal("a")}); err != nil {
		t.Fatalf("the new token: %v", err)
	}
}

func TestFenceIsIdempotentAndConcurrent(t *testing.T) {
	b := newBench(t)
	tok := b.managed(t, record.Shape{})
	var g errgroup.Group
	for range 8 {
		g.Go(func() error { return b.Fence(t.Context(), next(tok, "things.n2")) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(t.Context(), next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "things.n2" {
		t.Fatalf("located %q, %v", name, err)
	}
	// On to the next name; then the first fence, sent again late, must report what it
	// found.
	moved := tok
	moved.Name = "things.n2"
	if err := b.Fence(t.Context(), next(moved, "things.n3")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, b.Fence(t.Context(), next(tok, "things.n2")), record.ErrBroken)
	if name, err := b.Locate(t.Context(), tok.ID); err != nil || name != "things.n3" {
		t.Fatalf("located %q, %v", name, err)
	}
	if err := b.Unfence(t.Context(), next(moved, "things.n3")); err != nil {
		t.Fatal(err)
	}
	if name, _ := b.Locate(t.Context(), tok.ID); name != "things.n3" {
		t.Fatal("unfence renamed a managed kind back")
	}
}

func TestFenceResolvesARenameThatHappenedAlready(t *testing.T) {
	b := newBench(t)
	tok := b.managed(t, record.Shape{})
	rename := bson.D{
		{Key: "renameCollection", Value: b.name + "." + tok.Name}, {Key: "to", Value: b.name + ".things.n2"},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	}
	if err := b.raw.Client().Database("admin").RunCommand(t.Context(), rename).Err(); err != nil {
		t.Fatal(err)
	}
	// Somebody without UUIDs makes the old name again: it must not be renamed in our place.
	b.run(t, bson.D{{Key: "insert", Value: tok.Name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "stray"}}}}})
	if err := b.Fence(t.Context(), next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	if got := len(b.docs(t, "things.n2")); got != 3 {
		t.Fatalf("%d documents, want 3", got)
	}
}

func TestFenceErrorsAreClear(t *testing.T) {
	b := newBench(t)
	tok := b.managed(t, record.Shape{})
	b.run(t, bson.D{{Key: "create", Value: "things.n2"}})
	err := b.Fence(t.Context(), next(tok, "things.n2"))
	if err == nil || !strings.Contains(err.Error(), "taken by another collection") {
		t.Fatalf("error is %v", err)
	}
	gone := tok
	gone.ID = strings.Repeat("0", 32)
	wantErr(t, b.Fence(t.Context(), next(gone, "things.n5")), record.ErrBroken)
	_, err = b.Locate(t.Context(), gone.ID)
	wantErr(t, err, record.ErrNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, b.Fence(ctx, next(tok, "things.n3")), context.Canceled)
}

func TestFenceKillsOnlyTheTransactionsInItsWay(t *testing.T) {
	b := newBench(t)
	tok := b.managed(t, record.Shape{})
	b.run(t, bson.D{{Key: "create", Value: "elsewhere"}})
	open := func(coll, id string) *mongo.Session {
		s, err := b.raw.Client().StartSession()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.EndSession(context.Background()) })
		if err := s.StartTransaction(); err != nil {
			t.Fatal(err)
		}
		_, err = b.raw.Collection(coll).InsertOne(mongo.NewSessionContext(t.Context(), s), bson.D{{Key: "_id", Value: id}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	victim, bystander := open(tok.Name, "late"), open("elsewhere", "fine")
	start := time.Now()
	if err := b.Fence(t.Context(), next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	t.Logf("fence with an open transaction in its way: %v", time.Since(start))
	if err := victim.CommitTransaction(t.Context()); !hasCode(err, codeNoSuchTransaction) {
		t.Errorf("commit of the victim: %v", err)
	}
	if err := bystander.CommitTransaction(t.Context()); err != nil {
		t.Errorf("commit of the bystander: %v", err)
	}
	if got := len(b.docs(t, "things.n2")); got != 3 {
		t.Errorf("%d documents, want 3", got)
	}
}

// TestFenceUnderFire is the barrier: whatever is acknowledged is there, and nothing
// changes after the fence has returned.
func TestFenceUnderFire(t *testing.T) {
	b := newBench(t)
	tok := b.managed(t, record.Shape{})
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
					ms = []record.Mutation{creation(name, i)}
				case 2:
					ms = []record.Mutation{replacement(earlier, i)}
				case 3:
					ms = []record.Mutation{creation(name, i), removal(earlier)}
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
	waitFor(t, func() bool { return wrote.Load() > 800 })
	began := time.Now()
	if err := b.Fence(t.Context(), next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	atFence := b.docs(t, "things.n2")
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	after := b.docs(t, "things.n2")
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
