package throttle

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// longTurn is the time after which a Pacer gives up its place to one that waits. So a few large
	// copies do not keep out many small ones.
	longTurn = time.Minute
	// stillTurn is the time without a page after which a Pacer loses its place to one that waits. Its
	// database may be away for hours.
	stillTurn = 10 * time.Second
)

// Turns limits how many Pacers of a process let bulk work pass at the same time. They get their turns
// in the order in which they ask. It is safe for concurrent use.
type Turns struct {
	places int

	mu     sync.Mutex
	having map[*Pacer]*turn
	line   []waiter
}

// turn is the place of a Pacer. Turns.mu guards it.
type turn struct{ begun, used time.Time }

// waiter is a Pacer in the line. came is closed when its turn comes.
type waiter struct {
	p    *Pacer
	came chan struct{}
}

// NewTurns returns Turns for a number of Pacers at a time.
func NewTurns(places int) *Turns { return &Turns{places: max(1, places), having: map[*Pacer]*turn{}} }

// take returns nil if p may read a page now. Otherwise it puts p into the line, and returns a channel
// that is closed when its turn comes.
func (t *Turns) take(p *Pacer, now time.Time) <-chan struct{} {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if had := t.having[p]; had != nil {
		if len(t.line) == 0 || now.Sub(had.begun) < longTurn {
			had.used = now
			return nil
		}
		delete(t.having, p)
	}
	// Others in the line also look once a second, so a place that stands still is noticed by one of
	// them.
	for other, had := range t.having {
		if now.Sub(had.used) >= stillTurn {
			delete(t.having, other)
		}
	}
	came := t.join(p)
	t.admit(now)
	if t.having[p] != nil {
		return nil
	}
	return came
}

// join puts p at the end of the line, unless it is in it. t.mu is held.
func (t *Turns) join(p *Pacer) chan struct{} {
	if i := t.at(p); i >= 0 {
		return t.line[i].came
	}
	came := make(chan struct{})
	t.line = append(t.line, waiter{p, came})
	return came
}

func (t *Turns) at(p *Pacer) int {
	return slices.IndexFunc(t.line, func(w waiter) bool { return w.p == p })
}

// admit gives free places to the first in the line. t.mu is held.
func (t *Turns) admit(now time.Time) {
	for len(t.having) < t.places && len(t.line) > 0 {
		first := t.line[0]
		t.line = t.line[1:]
		t.having[first.p] = &turn{begun: now, used: now}
		close(first.came)
	}
}

// leave gives up the place of p, or its place in the line.
func (t *Turns) leave(p *Pacer, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.having, p)
	if i := t.at(p); i >= 0 {
		t.line = slices.Delete(t.line, i, i+1)
	}
	t.admit(now)
}

// waits returns why p waits for its turn; "" if it does not.
func (t *Turns) waits(p *Pacer) string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.at(p)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("at most %d deployments of this process copy at the same time (copy.deployments), and %d more come first", t.places, i)
}
