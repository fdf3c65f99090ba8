package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
)

// swapping is a lastKnown over a store whose reads it counts.
type swapping struct {
	*memcoord.Store
	t     *testing.T
	known lastKnown
	gets  int

	beforeGet, beforeCommit func() // nil: nothing
	plain                   bool   // conflicts do not bring a value
}

func newSwapping(t *testing.T) *swapping {
	return &swapping{Store: memcoord.New(), t: t, known: lastKnown{maxKeys: 2, maxBytes: 10}}
}

func (s *swapping) Get(ctx context.Context, key string) (coord.KV, error) {
	s.gets++
	if s.beforeGet != nil {
		s.beforeGet()
	}
	return s.Store.Get(ctx, key)
}

func (s *swapping) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if s.beforeCommit != nil {
		s.beforeCommit()
	}
	rev, err := s.Store.Commit(ctx, conditions, ops)
	if s.plain && errors.Is(err, coord.ErrConflict) {
		err = coord.ErrConflict
	}
	return rev, err
}

// add appends a letter to the value of a key, and returns the value.
func (s *swapping) add(key, letter string) string {
	s.t.Helper()
	kv, err := s.known.swap(s.t.Context(), s, key, nil, appending(letter))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(kv.Value)
}

func appending(letter string) change {
	return func(kv coord.KV, _ error) (*coord.Op, error) {
		return &coord.Op{Value: append(append([]byte{}, kv.Value...), letter...)}, nil
	}
}

func (s *swapping) put(key, value string) {
	s.t.Helper()
	if _, err := s.Commit(s.t.Context(), nil, []coord.Op{{Key: key, Value: []byte(value)}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *swapping) want(gets int, key, value string) {
	s.t.Helper()
	if s.gets != gets {
		s.t.Errorf("%d reads, want %d", s.gets, gets)
	}
	s.gets = 0
	if kv, err := s.Store.Get(s.t.Context(), key); err != nil || string(kv.Value) != value {
		s.t.Errorf("%s is %q, %v, want %q", key, kv.Value, err, value)
	}
}

// TestSwapOfAKnownValue: a known value needs no read. A conflict needs none either, and keeps the
// other process's change.
func TestSwapOfAKnownValue(t *testing.T) {
	s := newSwapping(t)
	s.add("k", "a")
	s.want(1, "k", "a")
	s.add("k", "b")
	s.want(0, "k", "ab")
	s.put("k", "other ")
	s.add("k", "c")
	s.want(0, "k", "other c")
	// A read is known, too.
	if _, err := s.known.read(t.Context(), s, "k"); err != nil {
		t.Fatal(err)
	}
	s.add("k", "d")
	s.want(1, "k", "other cd")
	if _, err := s.Commit(t.Context(), nil, []coord.Op{{Key: "k", Delete: true}}); err != nil {
		t.Fatal(err)
	}
	s.add("k", "e")
	s.want(0, "k", "e")
}

// TestSwapAfterARestore: the restored store has another value at the known revision.
func TestSwapAfterARestore(t *testing.T) {
	s, restored := newSwapping(t), newSwapping(t)
	s.add("k", "a")
	restored.put("k", "z")
	s.Store, s.gets = restored.Store, 0
	s.add("k", "b")
	s.want(0, "k", "zb")
}

// TestSwapAfterARestoreInAConflict: the store is restored between a conflict and the next commit.
func TestSwapAfterARestoreInAConflict(t *testing.T) {
	s, restored := newSwapping(t), newSwapping(t)
	s.add("k", "a")
	s.put("k", "b")
	s.gets = 0
	restored.put("k", "y")
	restored.put("k", "z")
	s.beforeCommit = func() {
		s.beforeCommit = func() { s.Store = restored.Store }
	}
	s.add("k", "c")
	s.beforeCommit = nil
	s.want(0, "k", "zc")
}

// TestSwapIsBounded: large values, and more values than fit, only cost a read.
func TestSwapIsBounded(t *testing.T) {
	s := newSwapping(t)
	long := strings.Repeat("x", 11)
	s.add("k", long)
	s.add("k", "y")
	s.want(2, "k", long+"y")
	for _, key := range []string{"1", "2", "3"} {
		s.add(key, "a")
	}
	s.gets = 0
	s.add("3", "b")
	s.want(0, "3", "ab")
	s.add("1", "b")
	s.want(1, "1", "ab")
}

// TestSwapDecidesOnStoredValues: only a value just read can be refused, or need no change.
func TestSwapDecidesOnStoredValues(t *testing.T) {
	refusal := errors.New("refused")
	for _, refuses := range []error{refusal, nil} {
		s := newSwapping(t)
		s.add("k", "a")
		s.gets = 0
		decide := func(kv coord.KV, _ error) (*coord.Op, error) {
			if string(kv.Value) == "a" {
				return nil, refuses
			}
			return &coord.Op{Value: []byte("b")}, nil
		}
		kv, err := s.known.swap(t.Context(), s, "k", nil, decide)
		if !errors.Is(err, refuses) || string(kv.Value) != "a" {
			t.Errorf("swap = %q, %v, want %v", kv.Value, err, refuses)
		}
		s.want(1, "k", "a")
		s.put("k", "other")
		if _, err := s.known.swap(t.Context(), s, "k", nil, decide); err != nil {
			t.Error(err)
		}
		s.want(1, "k", "b")
	}
}

// TestSwapResolvesUnknown: a lost answer is found by a read, and the change is not made twice. A lost
// request is repeated. Without a read the outcome stays unknown.
func TestSwapResolvesUnknown(t *testing.T) {
	for fault, want := range map[memcoord.Fault]int{memcoord.LoseAnswer: 1, memcoord.LoseRequest: 2} {
		for _, known := range []bool{false, true} {
			s := newSwapping(t)
			s.add("k", "a")
			if !known {
				s.known.forget("k")
			}
			commits := 0
			s.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
				if commits++; commits == 1 {
					return fault
				}
				return memcoord.Deliver
			})
			if value := s.add("k", "b"); value != "ab" {
				t.Errorf("fault %d: %q, want ab", fault, value)
			}
			if commits != want {
				t.Errorf("fault %d: %d commits, want %d", fault, commits, want)
			}
		}
	}
	s := newSwapping(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
		cancel()
		return memcoord.LoseAnswer
	})
	if _, err := s.known.swap(ctx, s, "k", nil, appending("a")); !errors.Is(err, coord.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("swap = %v, want ErrUnknown and the context's error", err)
	}
}

// TestSwapConditions: a condition that fails is ErrOwnership. A conflict over a key that came and went
// is not.
func TestSwapConditions(t *testing.T) {
	s := newSwapping(t)
	s.add("k", "a")
	lock := []coord.Condition{{Key: "lock", Revision: 1000}}
	for range 2 { // on a known value, and on one that was read
		if _, err := s.known.swap(t.Context(), s, "k", lock, appending("b")); !errors.Is(err, ErrOwnership) {
			t.Errorf("swap = %v, want ErrOwnership", err)
		}
		s.known.forget("k")
	}

	other := s.Client()
	commit := func(op coord.Op) {
		if _, err := other.Commit(t.Context(), nil, []coord.Op{op}); err != nil {
			t.Error(err)
		}
	}
	commits := 0
	s.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
		if commits++; commits == 1 {
			commit(coord.Op{Key: "new"})
			s.beforeGet = func() { commit(coord.Op{Key: "new", Delete: true}) }
		}
		return memcoord.Deliver
	})
	s.gets, s.plain = 0, true
	s.add("new", "a")
	s.want(2, "new", "a")
}

// fullStore is a store that is full, and does not know whether the last commit was the one that
// filled it.
type fullStore struct{ coord.Store }

func (fullStore) Commit(context.Context, []coord.Condition, []coord.Op) (int64, error) {
	return 0, fmt.Errorf("commit: %w: %w", coord.ErrUnknown, coord.ErrNoSpace)
}

// TestFullStoreEndsCommit: the caller learns that the store is full, instead of waiting for room.
func TestFullStoreEndsCommit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &Store{coord: fullStore{}}
	if err := s.commitOwned(ctx, nil, []coord.Op{{Key: "k"}}); !errors.Is(err, coord.ErrNoSpace) || ctx.Err() != nil {
		t.Errorf("commit: %v, want ErrNoSpace at once", err)
	}
}
