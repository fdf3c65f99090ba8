package recordtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// hammer runs writers until a fence stops them. It records their acknowledged writes.
type hammer struct {
	errgroup.Group
	fenced func(error) bool // reports whether a writer's error means that it was stopped
	warm   int              // number of acknowledged writes before the fence is sent
	ready  chan struct{}    // closed at that point

	mu      sync.Mutex
	count   int
	state   map[string]int  // newest acknowledged state by name; negative: deleted
	written map[string]bool // names that were written at least once
	maybe   map[string]int  // newest state with unknown outcome
}

func newHammer(writers, each int) *hammer {
	return &hammer{
		fenced: func(err error) bool { return errors.Is(err, record.ErrFenced) },
		warm:   writers * each, ready: make(chan struct{}),
		state: map[string]int{}, written: map[string]bool{}, maybe: map[string]int{},
	}
}

// write makes one write of some states. more is false once the writer was fenced. Further attempts
// must then fail as well.
func (h *hammer) write(states map[string]int, do func() error) (more bool, err error) {
	err = do()
	switch {
	case err == nil:
		h.note(states, h.state)
		return true, nil
	case errors.Is(err, record.ErrUnknown):
		h.note(states, h.maybe)
		return true, nil
	case !h.fenced(err):
		return false, err
	}
	// A fence must be final: no later write may pass.
	for range 3 {
		if err := do(); err == nil {
			return false, fmt.Errorf("acknowledged after a write that was fenced: %v", states)
		} else if !h.fenced(err) {
			return false, err
		}
	}
	return false, nil
}

func (h *hammer) note(states, in map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, n := range states {
		in[name] = n
		if n >= 0 {
			h.written[name] = true
		}
	}
	if h.count++; h.count == h.warm {
		close(h.ready)
	}
}

// fence sends the fence during the writes, and waits for the writers to end.
func (h *hammer) fence(t *testing.T, fence func() error) {
	t.Helper()
	ended := make(chan error, 1)
	// Writers may fail before the fence is sent, so wait for both.
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

// wantHeld compares a kind with the acknowledged writes. Names without an acknowledged write must
// be absent.
func (h *hammer) wantHeld(t *testing.T, have map[record.Key]record.Record) {
	t.Helper()
	fits := func(r record.Record, n int) bool {
		return (r.Doc == nil && n < 0) || (r.Doc != nil && n >= 0 && number(t, r.Doc) == n)
	}
	for name, n := range h.state {
		r := have[record.StringKey(name)]
		// A write with unknown outcome may have happened or not.
		if m, unknown := h.maybe[name]; !fits(r, n) && (!unknown || !fits(r, m)) {
			t.Errorf("%s: acknowledged state %d, holds %s", name, n, r.Doc)
		}
	}
	for key, r := range have {
		_, acked := h.state[key.String()]
		_, unknown := h.maybe[key.String()]
		if !acked && !unknown && r.Doc != nil {
			t.Errorf("%s is there, but its write was refused", key)
		}
	}
}

// wantBefore checks the changes: every written name comes before the marker, and nothing comes
// after it.
func (h *hammer) wantBefore(t *testing.T, k *kind, s record.Stream, marker string) {
	t.Helper()
	cs, _ := next(t, s, marked(k, marker))
	end := slices.IndexFunc(cs, func(c record.Change) bool { return c.Marker == marker })
	// A write that was acknowledged must come before the marker.
	seen := map[string]bool{}
	for _, c := range cs[:end] {
		seen[c.Key.String()] = true
	}
	for name := range h.state {
		if h.written[name] && !seen[name] {
			t.Errorf("%s was acknowledged, but is not before the marker", name)
		}
	}
	for _, c := range append(cs[end+1:], quiet(t, s)...) {
		if c.Marker != marker {
			t.Errorf("%+v comes after the marker", c)
		}
	}
}

// fenceHammer checks the whole promise of a fence. Acknowledged writes are present and come before
// the marker. Late writes, deletes included, are refused and have no effect. Half of the writers
// use transactions that also cover an unfenced kind.
func fenceHammer(t *testing.T, b *bench) {
	k, l := b.managed(t), b.managed(t)
	s := b.follow(t, b.now(t), k)
	f := k.announce(t)
	toks := tokens(k, l)
	ctx := bounded(t)
	const writers = 6
	// The second one records the writes to the kind without a fence.
	h, second := newHammer(writers, 8), newHammer(1, 1)
	for w := range writers {
		h.Go(func() error {
			for i := 0; ; i++ {
				// Few names, so that records are created, replaced and deleted.
				name := fmt.Sprintf("w%d-%d", w, i%5)
				states, beside := map[string]int{name: i}, map[string]int{}
				if i%4 == 3 {
					states[name] = -1
				}
				ms := []record.Mutation{k.mutation(name, states[name])}
				// These writers use transactions over both kinds.
				if w%2 == 1 {
					other := fmt.Sprintf("w%d-t%d", w, i)
					states[other], beside[other] = i, i
					ms = append(ms, k.mutation(other, i), l.mutation(other, i))
				}
				more, err := h.write(states, func() error {
					err := b.Client.Write(ctx, toks, ms)
					switch {
					case err == nil:
						second.note(beside, second.state)
					case errors.Is(err, record.ErrUnknown):
						second.note(beside, second.maybe)
					}
					return err
				})
				if err != nil || !more {
					return err
				}
			}
		})
	}
	h.fence(t, func() error { return b.Namespace.Fence(ctx, f) })
	k.moved(f)
	h.wantHeld(t, k.all(t))
	second.wantHeld(t, l.all(t))
	h.wantBefore(t, k, s, f.To)
}

// fenceAppliers checks that a fence stops forward appliers in the same way as clients.
func fenceAppliers(t *testing.T, b *bench, mk func(*testing.T, ...record.Shape) *kind) {
	k := mk(t)
	f := k.announce(t)
	toks := tokens(k)
	ctx := bounded(t)
	h := newHammer(4, 10)
	for w := range 4 {
		h.Go(func() error {
			for v := 1; ; v++ {
				// Create a new name and delete the one before, each in its own group.
				now, gone := fmt.Sprintf("w%d-%05d", w, v), fmt.Sprintf("w%d-%05d", w, v-1)
				batch := record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{group(v, k.set(now, v)), group(v, k.set(gone, -1))}}
				more, err := h.write(map[string]int{now: v, gone: -1}, func() error {
					_, err := b.Namespace.Apply(ctx, batch)
					if errors.Is(err, record.ErrFenced) {
						// The fence may have come after the first group of the batch was applied.
						h.mu.Lock()
						h.maybe[now], h.maybe[gone] = v, -1
						h.mu.Unlock()
					}
					return err
				})
				if err != nil || !more {
					return err
				}
			}
		})
	}
	h.fence(t, func() error { return b.Namespace.Fence(ctx, f) })
	k.moved(f)
	h.wantHeld(t, k.all(t))
}
