package moves

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
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

// queue has a region asked about a pending move that was the same at an earlier look. A move that goes on
// does not need a question. It returns what the move waits for.
func (m *Mover) queue(d vrunner.Dirty, of string) (waits string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits = "waits for region " + of
	p := m.pending[d]
	switch {
	case p == nil:
		return waits
	case p.region == of && p.waits != "":
		waits = p.waits // the latest answer
	}
	if p.next.After(time.Now()) {
		return waits
	}
	if t := m.turns[of]; t != nil {
		t.add(d)
		return waits
	}
	return ErrUnknownRegion.Error()
}

// confirm returns the end of a record whose counterpart does not stand in the other region. What it has
// given away it keeps: only a proof that the other region owns it, or has owned it, deletes that.
func (m *Mover) confirm(ctx context.Context, k Kind, s *seen, of string, own region.Move) (ms []record.Mutation, waits string, err error) {
	stands, err := m.cfg.Ask(ctx, of, Question{s.Kind, m.cfg.Version, s.Name, own})
	switch {
	case err != nil:
		return nil, "", err
	case stands:
		return nil, "waits for region " + of + " and the copy of its record", nil
	}
	if own.Step == region.Left {
		m.cfg.Log.Warn("another region has no record of a move to it; the record is kept", slog.String("kind", s.Kind), slog.String("record", strings.ToValidUTF8(s.Name, "?")), slog.String("region", of))
		own.Step = region.Missing
		ms, err = m.write(k, s, own)
		return ms, "", err
	}
	return []record.Mutation{m.remove(s)}, "", nil
}
