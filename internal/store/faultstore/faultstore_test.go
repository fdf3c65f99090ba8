package faultstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func factory(inj faultstore.Injector) recordtest.Factory {
	return func(*testing.T) recordtest.Backend {
		s := memstore.New()
		return recordtest.Backend{
			Namespace:   faultstore.Wrap(s, inj),
			Client:      faultstore.WrapClient(s, inj),
			App:         s.Foreign(),
			LoseHistory: func(*testing.T) { s.Cluster().LoseHistory() },
		}
	}
}

func TestConformanceWithoutFaults(t *testing.T) {
	seen := faultstore.Count(faultstore.Never())
	t.Cleanup(func() {
		if seen.Seen() == 0 || seen.Fired() != 0 {
			t.Errorf("%d commands seen, %d faults", seen.Seen(), seen.Fired())
		}
	})
	recordtest.Exercise(t, factory(seen))
}

// Appliers whose acknowledgements get lost, whose servers are away and whose batches are
// sent late still bring the target to the newest state.
func TestConvergenceUnderFaults(t *testing.T) {
	applies := []faultstore.Command{faultstore.Apply, faultstore.Load}
	for name, f := range map[string]faultstore.Fault{
		"lost acknowledgements": faultstore.Lost(),
		"connections cut":       faultstore.Cut(),
		"server down":           faultstore.Down(),
		"latency":               {Latency: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			fired := faultstore.Count(faultstore.On(faultstore.Probability(7, 0.3, f), applies...))
			recordtest.ExerciseConvergence(t, factory(fired))
			fired.AssertFired(t, 20)
		})
	}
}

func document(n int) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}, {Key: "n", Value: n}})
	if err != nil {
		panic(err) // the test's own literal
	}
	return b
}

func provisioned(t *testing.T, s *memstore.Store) (record.KindSpec, record.Tokens) {
	t.Helper()
	spec := record.KindSpec{Name: "things"}
	tok, err := s.Provision(t.Context(), spec, record.PhysicalName(spec.Name, 0))
	if err != nil {
		t.Fatal(err)
	}
	return spec, record.Tokens{spec.Name: tok}
}

func put(toks record.Tokens, c record.Client, n int) error {
	return c.Write(context.Background(), toks, []record.Mutation{{Kind: "things", Key: record.StringKey("a"), Doc: document(n)}})
}

func TestBeforeDoesNothingAndAfterDoes(t *testing.T) {
	s := memstore.New()
	_, toks := provisioned(t, s)
	inj := faultstore.Count(faultstore.On(faultstore.Any(
		faultstore.Nth(1, faultstore.Down()),
		faultstore.Nth(1, faultstore.Lost()), // asked only where the first had no fault
	), faultstore.Write))
	c := faultstore.WrapClient(s, inj)

	if err := put(toks, c, 1); !errors.Is(err, faultstore.ErrInjected) || errors.Is(err, record.ErrUnknown) {
		t.Errorf("first write: %v", err)
	}
	if _, err := s.Get(t.Context(), toks["things"], record.StringKey("a")); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a command that was never sent had an effect: %v", err)
	}
	if err := put(toks, c, 2); !errors.Is(err, record.ErrUnknown) {
		t.Errorf("second write: %v", err)
	}
	if r, err := s.Get(t.Context(), toks["things"], record.StringKey("a")); err != nil || string(r.Doc) != string(document(2)) {
		t.Errorf("a command whose answer got lost had no effect: %v, %v", r.Doc, err)
	}
	if err := put(toks, c, 3); err != nil {
		t.Errorf("third write: %v", err)
	}
	inj.AssertFired(t, 2)
}

// The paused writer of the design: it wakes after the fence and must be refused.
func TestPausedWriterMeetsTheFence(t *testing.T) {
	s := memstore.New()
	spec, toks := provisioned(t, s)
	gate := faultstore.NewGate(1)
	c := faultstore.WrapClient(s, faultstore.On(gate, faultstore.Write))
	done := make(chan error)
	go func() { done <- put(toks, c, 1) }()
	if op := <-gate.Held(); len(op.Kinds) != 1 || op.Kinds[0] != spec.Name {
		t.Errorf("held %+v", op)
	}
	f := record.Fence{Class: record.FenceUUID, Token: toks[spec.Name], To: record.PhysicalName(spec.Name, 1)}
	if err := s.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	if err := <-done; !errors.Is(err, record.ErrFenced) {
		t.Errorf("the late write: %v, want ErrFenced", err)
	}
}

func TestLatencyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		ns := faultstore.Wrap(s, faultstore.Always(faultstore.Fault{Latency: time.Hour}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := ns.Position(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("position: %v", err)
		}
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("waited %s", waited)
		}
	})
}

// A stream whose answers get lost delivers them again: none missing.
func TestLostBatchesComeAgain(t *testing.T) {
	s := memstore.New()
	spec, toks := provisioned(t, s)
	lost := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Cut()), faultstore.Next))
	ns := faultstore.Wrap(s, lost)
	pos, err := ns.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st, err := ns.Watch(t.Context(), pos, []record.KindSpec{spec})
	if err != nil {
		t.Fatal(err)
	}
	if err := put(toks, s, 1); err != nil {
		t.Fatal(err)
	}
	lost.On()
	if _, err := st.Next(t.Context()); !errors.Is(err, faultstore.ErrInjected) {
		t.Errorf("next: %v", err)
	}
	lost.Off()
	if b, err := st.Next(t.Context()); err != nil || len(b.Changes) != 1 {
		t.Errorf("next: %+v, %v", b, err)
	}
	if err := st.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHealth: a wrapped database is measured through its faults.
func TestHealth(t *testing.T) {
	s := memstore.New()
	down := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Health))
	ns := faultstore.Wrap(s, down)
	s.Cluster().SetHealth(record.Health{CPU: 0.5}, nil)
	if h, err := ns.Health(t.Context()); err != nil || h.CPU != 0.5 {
		t.Errorf("%+v, %v", h, err)
	}
	down.On()
	if _, err := ns.Health(t.Context()); !errors.Is(err, faultstore.ErrInjected) {
		t.Errorf("%v, want the fault", err)
	}
}

func Example() {
	ctx := context.Background()
	store := memstore.New()
	tok, _ := store.Provision(ctx, record.KindSpec{Name: "things"}, "things.n0")
	faults := faultstore.Count(faultstore.On(faultstore.Nth(1, faultstore.Lost()), faultstore.Write))
	client := faultstore.WrapClient(store, faults)

	err := client.Write(ctx, record.Tokens{"things": tok}, []record.Mutation{
		{Kind: "things", Key: record.StringKey("a"), Doc: document(1)},
	})
	fmt.Println(errors.Is(err, record.ErrUnknown), faults.Fired())
	_, err = client.Get(ctx, tok, record.StringKey("a"))
	fmt.Println("it was written:", err == nil)
	// Output:
	// true 1
	// it was written: true
}

// It needs a test, so it is compiled and not run.
func ExampleCounter_AssertFired() {
	var t *testing.T
	store, run := memstore.New(), func(record.Namespace) {}
	const seed = 1
	lost := faultstore.Count(faultstore.On(faultstore.Probability(seed, 0.2, faultstore.Lost()), faultstore.Apply))
	run(faultstore.Wrap(store, lost))
	lost.AssertFired(t, 1)
}
