package memstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

func document(id string, n int) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: id}, {Key: "n", Value: int32(n)}})
	if err != nil {
		panic(err) // the test's own literal
	}
	return b
}

func provision(t *testing.T, s *Store, name string, fixed bool) record.Token {
	t.Helper()
	spec := record.KindSpec{Name: name, Fixed: fixed}
	if !fixed {
		name = record.PhysicalName(name, 0)
	}
	tok, err := s.Provision(t.Context(), spec, name)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func write(t *testing.T, s *Store, tok record.Token, n int) {
	t.Helper()
	m := record.Mutation{Kind: tok.Kind, Key: record.StringKey("a"), Doc: document("a", n)}
	if err := s.Write(t.Context(), record.Tokens{tok.Kind: tok}, []record.Mutation{m}); err != nil {
		t.Fatal(err)
	}
}

// The write block stops the whole cluster, as the suite cannot on a shared one.
func TestWriteBlock(t *testing.T) {
	c := NewCluster(Options{})
	s, other := c.Open("one"), c.Open("two")
	tok := provision(t, s, "things", true)
	class, restore, err := s.Prepare(t.Context(), tok, record.FenceWriteBlock)
	if err != nil || class != record.FenceWriteBlock {
		t.Fatalf("prepare: %s, %v", class, err)
	}
	f := record.Fence{Class: class, Token: tok, To: "things.n1", Restore: restore}
	if err := s.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	for _, app := range []*Foreign{s.Foreign(), other.Foreign()} {
		if err := app.Insert(t.Context(), "things", document("a", 1)); !errors.Is(err, ErrRejected) {
			t.Errorf("insert: %v", err)
		}
		if err := app.Delete(t.Context(), "things", record.StringKey("a").Value()); !errors.Is(err, ErrRejected) {
			t.Errorf("delete: %v", err)
		}
	}
	if err := s.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := s.Foreign().Insert(t.Context(), "things", document("a", 1)); err != nil {
		t.Errorf("insert after unfence: %v", err)
	}
}

// Reads that do not state what they must see are behind by as much as was asked for.
func TestLag(t *testing.T) {
	s := NewCluster(Options{Lag: 3}).Open("test")
	tok := provision(t, s, "things", false)
	for n := 1; n <= 5; n++ {
		write(t, s, tok, n)
	}
	pos, err := s.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for notBefore, want := range map[record.Version]int32{{}: 2, pos.At: 5} {
		snap, err := s.Read(t.Context(), record.ReadRequest{
			Tokens: record.Tokens{"things": tok}, NotBefore: notBefore,
			Select: []record.Selector{{Kind: "things", Key: record.StringKey("a")}},
		})
		if err != nil || len(snap.Records) != 1 || snap.Records[0].Doc.Lookup("n").Int32() != want {
			t.Errorf("not before %s: %v, %v, want state %d", notBefore, snap.Records, err, want)
		}
	}
}

// What somebody else does to a watched kind ends its stream.
func TestForeignMovesBreakStreams(t *testing.T) {
	for name, move := range map[string]func(context.Context, *Foreign) error{
		"rename": func(ctx context.Context, f *Foreign) error { return f.Rename(ctx, "things", "elsewhere") },
		"drop":   func(ctx context.Context, f *Foreign) error { return f.Drop(ctx, "things") },
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			provision(t, s, "things", true)
			pos, err := s.Position(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			st, err := s.Watch(t.Context(), pos, []record.KindSpec{{Name: "things", Fixed: true}})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Foreign().Put(t.Context(), "things", document("a", 1)); err != nil {
				t.Fatal(err)
			}
			if err := move(t.Context(), s.Foreign()); err != nil {
				t.Fatal(err)
			}
			if b, err := st.Next(t.Context()); err != nil || len(b.Changes) != 1 {
				t.Errorf("what came before: %+v, %v", b, err)
			}
			for range 2 {
				if _, err := st.Next(t.Context()); !errors.Is(err, record.ErrBroken) {
					t.Errorf("next: %v, want ErrBroken", err)
				}
			}
		})
	}
}

// A waiting stream is woken by a change, at once, and by the clock after a second.
func TestNextIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		tok := provision(t, s, "things", false)
		pos, err := s.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.Watch(t.Context(), pos, []record.KindSpec{{Name: "things"}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if b, err := st.Next(t.Context()); err != nil || len(b.Changes) != 0 || time.Since(start) != idle {
			t.Errorf("idle: %+v, %v after %s", b, err, time.Since(start))
		}
		start = time.Now()
		got := make(chan record.ChangeBatch)
		go func() {
			b, err := st.Next(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- b
		}()
		synctest.Wait()
		write(t, s, tok, 1)
		if b := <-got; len(b.Changes) != 1 || time.Since(start) != 0 {
			t.Errorf("woken: %+v after %s", b, time.Since(start))
		}
	})
}

func TestViewsAreRefused(t *testing.T) {
	s := New()
	if err := s.Foreign().CreateView(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	var unsupported *record.UnsupportedError
	if _, err := s.Describe(t.Context(), record.KindSpec{Name: "report", Fixed: true}, "report"); !errors.As(err, &unsupported) {
		t.Errorf("describe: %v", err)
	}
	if _, err := s.Provision(t.Context(), record.KindSpec{Name: "report", Fixed: true}, "report"); !errors.As(err, &unsupported) {
		t.Errorf("provision: %v", err)
	}
}

// A late writer meets the fence.
func Example() {
	ctx := context.Background()
	store := New()
	old, _ := store.Provision(ctx, record.KindSpec{Name: "things"}, record.PhysicalName("things", 0))
	_ = store.Fence(ctx, record.Fence{Class: record.FenceUUID, Token: old, To: record.PhysicalName("things", 1)})

	m := []record.Mutation{{Kind: "things", Key: record.StringKey("a"), Doc: document("a", 1)}}
	err := store.Write(ctx, record.Tokens{"things": old}, m)
	fmt.Println("old token fenced:", errors.Is(err, record.ErrFenced))
	moved := old
	moved.Name = record.PhysicalName("things", 1)
	fmt.Println("new token:", store.Write(ctx, record.Tokens{"things": moved}, m))
	// Output:
	// old token fenced: true
	// new token: <nil>
}

// The marker of a fence that is confirmed comes again, as in MongoDB. The first one ends the changes of
// the application.
func TestMarkerComesAgain(t *testing.T) {
	for _, class := range []record.FenceClass{record.FenceValidator, record.FenceWriteBlock} {
		s := NewCluster(Options{}).Open("test")
		tok := provision(t, s, "things", true)
		pos, err := s.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := record.Fence{Class: class, Token: tok, To: "things.n1"}
		for range 2 {
			if err := s.Fence(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			f.Standing = true
		}
		stream, err := s.Follow(t.Context(), pos, record.Tokens{"things": tok})
		if err != nil {
			t.Fatal(err)
		}
		b, err := stream.Next(t.Context())
		if err != nil || len(b.Changes) != 2 || b.Changes[0].Marker != f.To || b.Changes[1].Marker != f.To {
			t.Errorf("%s: %+v, %v, want the marker twice", class, b.Changes, err)
		}
		if err := stream.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
