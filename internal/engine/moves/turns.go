package moves

import (
	"context"
	"sync"

	"dbcontroller.dev/vrunner"
)

// turns are the records about which another region is to be asked. Each region has turns of its own and
// answers one question at a time, so one that hangs delays its own moves only.
type turns struct {
	mu      sync.Mutex
	waiting []vrunner.Dirty // without the one that is asked about
	queued  map[vrunner.Dirty]bool
	some    chan struct{} // has an element after an addition
}

func newTurns() *turns {
	return &turns{queued: map[vrunner.Dirty]bool{}, some: make(chan struct{}, 1)}
}

// add queues a record, at most once. Pending moves are bounded, and so are turns.
func (t *turns) add(d vrunner.Dirty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queued[d] {
		return
	}
	t.queued[d] = true
	t.waiting = append(t.waiting, d)
	select {
	case t.some <- struct{}{}:
	default: // it is there already
	}
}

// next returns the record that waits for longest. done must be called before the next one.
func (t *turns) next(ctx context.Context) (vrunner.Dirty, error) {
	for {
		t.mu.Lock()
		if len(t.waiting) > 0 {
			d := t.waiting[0]
			t.waiting = t.waiting[1:]
			t.mu.Unlock()
			return d, nil
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return vrunner.Dirty{}, context.Cause(ctx)
		case <-t.some:
		}
	}
}

func (t *turns) done(d vrunner.Dirty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.queued, d)
}

// ask asks a region about one record after the other.
func (m *Mover) ask(ctx context.Context, of string) error {
	for {
		d, err := m.turns[of].next(ctx)
		if err != nil {
			return err
		}
		err = m.look(ctx, []vrunner.Dirty{d}, of)
		m.turns[of].done(d)
		if err != nil {
			return err
		}
	}
}
