package recordtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
)

// hammer runs writers that go on until the fence stops them, and remembers what was
// acknowledged to them.
type hammer struct {
	errgroup.Group
	warm  int           // writes before the fence is sent
	ready chan struct{} // closed then

	mu    sync.Mutex
	count int
	state map[string]int // newest acknowledged state by name, negative when deleted
	maybe map[string]int // state of unknown outcome
}

func newHammer(writers, each int) *hammer {
	return &hammer{warm: writers * each, ready: make(chan struct{}), state: map[string]int{}, maybe: map[string]int{}}
}

// attempt makes one write. ok is false when the writer was fenced; then, a few more
// attempts must be refused as well.
func (h *hammer) attempt(write func() error) (ok bool, err error) {
	switch err := write(); {
	case err == nil:
		return true, nil
	case errors.Is(err, record.ErrFenced):
	default:
		return false, err
	}
	for range 3 {
		if err := write(); !errors.Is(err, record.ErrFenced) {
			return false, fmt.Errorf("a write after one that was fenced: %w", errOrNil(err))
		}
	}
	return false, nil
}

func errOrNil(err error) error {
	if err == nil {
		return errors.New("acknowledged")
	}
	return err
}

func (h *hammer) acked(name string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state[name] = n
	if h.count++; h.count == h.warm {
		close(h.ready)
	}
}

// fence sends the fence in the thick of it and waits for the writers to end.
func (h *hammer) fence(t *testing.T, fence func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- h.Wait() }()
	select {
	case <-h.ready:
	case err := <-ended:
		t.Fatalf("writers ended before the fence: %v", err)
	case <-bounded(t).Done():
		t.Fatal("writers make no progress")
	}
	if err := fence(); err != nil {
		t.Fatalf("fence: %v", err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("writer: %v", err)
		}
	case <-bounded(t).Done():
		t.Fatal("writers go on after the fence")
	}
}

// wantBefore checks the changes: every name that was written is before the marker, and
// nothing comes after it.
func (h *hammer) wantBefore(t *testing.T, k *kind, s record.Stream, marker string) {
	t.Helper()
	cs, _ := next(t, s, marked(k, marker))
	end := slices.IndexFunc(cs, func(c record.Change) bool { return c.Marker == marker })
	seen := map[string]bool{}
	for _, c := range cs[:end] {
		seen[c.Key.String()] = true
	}
	for name := range h.state {
		if !seen[name] {
			t.Errorf("%s was acknowledged, but is not before the marker", name)
		}
	}
	for _, c := range append(cs[end+1:], quiet(t, s)...) {
		if c.Marker != marker {
			t.Errorf("%+v comes after the marker", c)
		}
	}
}

// fenceHammer is the promise of a fence whole: what was acknowledged is there and
// before the marker; what came late was refused and had no effect, deletes included.
func fenceHammer(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	s := b.follow(t, b.now(t), k)
	f := k.announce(t)
	toks := tokens(k, l)
	ctx := bounded(t)
	const writers = 6
	h := newHammer(writers, 8)
	for w := range writers {
		h.Go(func() error {
			for i := 0; ; i++ {
				name, other := fmt.Sprintf("w%d-%d", w, i%5), fmt.Sprintf("w%d-t%d", w, i%3)
				states := map[string]int{name: i}
				if i%4 == 3 {
					states[name] = -1
				}
				ms := []record.Mutation{k.mutation(name, states[name])}
				if w%2 == 1 {
					// Transactions, also over a kind that is not fenced.
					states[other] = i
					ms = append(ms, k.mutation(other, i), l.mutation(fmt.Sprintf("%s-%d", other, i), i))
				}
				ok, err := h.attempt(func() error {
					err := b.Client.Write(ctx, toks, ms)
					if errors.Is(err, record.ErrUnknown) {
						h.unknown(states)
						return nil
					}
					return err
				})
				if err != nil || !ok {
					return err
				}
				for name, n := range states {
					h.acked(name, n)
				}
				if w%2 == 1 {
					h.transaction(fmt.Sprintf("%s-%d", other, i))
				}
			}
		})
	}
	h.fence(t, func() error { return b.Namespace.Fence(ctx, f) })
	k.moved(f)

	have := k.all(t)
	for name, n := range h.state {
		if len(name) > 3 && name[:2] == "l:" {
			continue
		}
		r := have[record.StringKey(name)]
		if live := r.Doc != nil; live != (n >= 0) || (live && number(t, r.Doc) != n) {
			if m, ok := h.maybe[name]; !ok || (live && number(t, r.Doc) != m) {
				t.Errorf("%s: acknowledged state %d, holds %s", name, n, r.Doc)
			}
		}
	}
	others := l.all(t)
	for name := range h.state {
		if len(name) > 3 && name[:2] == "l:" {
			if _, ok := others[record.StringKey(name[2:])]; !ok {
				t.Errorf("%s of an acknowledged transaction is not there", name[2:])
			}
			delete(others, record.StringKey(name[2:]))
			delete(h.state, name)
		}
	}
	if len(h.maybe) == 0 && len(others) > 0 {
		t.Errorf("%d records of transactions that were never acknowledged", len(others))
	}
	h.wantBefore(t, k, s, f.To)
}

// transaction notes a record of the second kind, under a name of its own.
func (h *hammer) transaction(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state["l:"+name] = 0
}

func (h *hammer) unknown(states map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, n := range states {
		h.maybe[name] = n
	}
}
