package hooks

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/upgradestate"
)

// kept is a store of the state of hooks.
type kept struct {
	mu       sync.Mutex
	state    State
	revision int64
	saved    func(State) // called after the first save, before it returns
}

func (k *kept) Watch(context.Context) <-chan upgradestate.Deployment { return nil }

func (k *kept) BlockedBy(context.Context, upgradestate.Deployment) (string, int64, error) {
	return "", 0, nil
}

func (k *kept) LoadHooks(context.Context) (State, int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.clone(), k.revision, nil
}

func (k *kept) SaveHooks(_ context.Context, s State, revision int64) (int64, error) {
	k.mu.Lock()
	if revision != k.revision {
		k.mu.Unlock()
		return 0, ErrChanged
	}
	k.state, k.revision = s.clone(), revision+1
	saved := k.saved
	k.saved = nil
	k.mu.Unlock()
	if saved != nil {
		saved(s)
	}
	return revision + 1, nil
}

func (k *kept) ForgetHooks(context.Context) error { return nil }

func happened(n int) func(*State) bool {
	return func(s *State) bool {
		for range n {
			s.Sequence++
			s.Queue = append(s.Queue, Event{ID: newID(), Sequence: s.Sequence, Type: Ready})
		}
		return true
	}
}

// TestLateState: of two changes at a time the one that was stored last stands, also where the
// answer to the other one comes after it.
func TestLateState(t *testing.T) {
	t.Parallel()
	store := &kept{}
	h := New([]Hook{{Name: "a"}}, store, zap.NewNop())
	if err := h.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	store.saved = func(State) {
		done := make(chan struct{})
		go func() {
			second <- h.change(t.Context(), "a later one", happened(1))
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(200 * time.Millisecond): // it has to wait for this one
		}
	}
	if err := h.change(t.Context(), "an earlier one", happened(1)); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if h.revision != store.revision || len(h.state.Queue) != 2 || h.state.Sequence != 2 {
		t.Errorf("%d events at revision %d, and %d at %d are stored", len(h.state.Queue), h.revision, len(store.state.Queue), store.revision)
	}
}

// TestTooManyEvents: what a hook is not told of, because more waits than is kept, is counted.
func TestTooManyEvents(t *testing.T) {
	t.Parallel()
	h := New([]Hook{{Name: "all"}, {Name: "none", Events: []Type{Parked}}, {Name: "told"}}, &kept{}, zap.NewNop())
	if err := h.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.change(t.Context(), "much", happened(maxQueue)); err != nil {
		t.Fatal(err)
	}
	err := h.change(t.Context(), "told", func(s *State) bool { s.Done["told"] = 3; return true })
	if err == nil {
		err = h.change(t.Context(), "more", happened(5))
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{5, 0, 2} {
		if got := h.Stats()[i]; got.GivenUp != want {
			t.Errorf("%s: %d were left out, want %d", got.Name, got.GivenUp, want)
		}
	}
	if n := len(h.state.Queue); n != maxQueue {
		t.Errorf("%d wait", n)
	}
}
