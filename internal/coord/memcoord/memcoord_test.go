package memcoord_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/coordtest"
	"dbcontroller.dev/internal/coord/memcoord"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	coordtest.Exercise(t, func(*testing.T) coord.Store { return suite{memcoord.New()} })
}

// suite is a Store with what coordtest needs beyond coord.Store.
type suite struct{ *memcoord.Store }

func (s suite) Peer() coord.Store { return s.Client() }

func (s suite) Cut() (heal func()) {
	s.Store.Cut()
	return s.Heal
}

func Example() {
	ctx := context.Background()
	one := memcoord.New()
	two := one.Client() // as another process
	lock := []coord.Op{{Key: "lock", Value: []byte("one")}}
	absent := []coord.Condition{{Key: "lock"}}
	_, err := one.Commit(ctx, absent, lock)
	fmt.Println(err)
	_, err = two.Commit(ctx, absent, lock)
	fmt.Println(errors.Is(err, coord.ErrConflict))
	// Output:
	// <nil>
	// true
}

func put(key string, lease coord.LeaseID) []coord.Op { return []coord.Op{{Key: key, Lease: lease}} }

// A cut client waits, its lease runs out, and a cut that is healed in time costs nothing.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		a := memcoord.New()
		b := a.Client()
		l, err := a.Grant(ctx, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Commit(ctx, nil, put("k", l.ID())); err != nil {
			t.Fatal(err)
		}
		a.Cut()
		began := time.Now()
		time.AfterFunc(2*time.Second, a.Heal)
		if _, err := a.Get(ctx, "k"); err != nil || time.Since(began) != 2*time.Second {
			t.Fatalf("Get across a short cut: %v after %s", err, time.Since(began))
		}
		a.Cut()
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, err := a.Commit(short, nil, put("x", 0)); !errors.Is(err, coord.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Commit while cut: %v", err)
		}
		if _, err := b.Get(ctx, "k"); err != nil {
			t.Fatalf("the lease ended too early: %v", err)
		}
		<-l.Done()
		if took := time.Since(began); took != 5*time.Second {
			t.Fatalf("the lease ended after %s, want 2s and its 3s", took)
		}
		if _, err := b.Get(ctx, "k"); !errors.Is(err, coord.ErrNotFound) {
			t.Fatalf("key of the lost lease: %v", err)
		}
		a.Heal()
		if _, err := a.Commit(ctx, nil, put("k", l.ID())); !errors.Is(err, coord.ErrLeaseLost) {
			t.Fatalf("Commit with the lost lease: %v", err)
		}
	})
}

// A paused client does not know that its lease ended until it goes on.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		a := memcoord.New()
		b := a.Client()
		l, err := a.Grant(ctx, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Commit(ctx, nil, put("k", l.ID())); err != nil {
			t.Fatal(err)
		}
		_, _, w, err := b.Follow(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		a.Pause()
		if events, err := w.Next(ctx); err != nil || !events[0].Deleted {
			t.Fatalf("Next = %v, %v, want the deletion", events, err)
		}
		select {
		case <-l.Done():
			t.Fatal("a paused process noticed")
		default:
		}
		a.Heal()
		<-l.Done()
	})
}

func TestFaults(t *testing.T) {
	ctx := t.Context()
	s := memcoord.New()
	fault := memcoord.LoseRequest
	s.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault { return fault })
	if _, err := s.Commit(ctx, nil, put("k", 0)); !errors.Is(err, coord.ErrUnknown) {
		t.Fatalf("lost request: %v", err)
	}
	if _, err := s.Get(ctx, "k"); !errors.Is(err, coord.ErrNotFound) {
		t.Fatalf("a lost request wrote: %v", err)
	}
	fault = memcoord.LoseAnswer
	if _, err := s.Commit(ctx, nil, put("k", 0)); !errors.Is(err, coord.ErrUnknown) {
		t.Fatalf("lost answer: %v", err)
	}
	if _, err := s.Get(ctx, "k"); err != nil {
		t.Fatalf("a lost answer did not write: %v", err)
	}
}
