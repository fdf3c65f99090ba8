package memcoord

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/internal/coord"
)

// lease lives without a timer. A timer runs only while the client cannot renew it (cut off, paused
// or abandoned). db.mu guards all fields except id and done.
type lease struct {
	db        *database
	owner     *Store
	id        coord.LeaseID
	ttl       time.Duration
	keys      map[string]bool
	done      chan struct{}
	doneKnown bool // done is closed
	abandoned bool // never renewed again
	timer     *time.Timer
	arming    int // counts timers, so that a timer stopped too late has no effect
}

var _ coord.Lease = (*lease)(nil)

// Grant implements coord.Store. It raises a ttl below a second to a second.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if err := s.connected(ctx); err != nil {
		return nil, fmt.Errorf("grant lease: %w", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.lastLease++
	l := &lease{
		db: s.db, owner: s, id: s.db.lastLease,
		ttl:  max(ttl, time.Second),
		keys: map[string]bool{},
		done: make(chan struct{}),
	}
	s.db.leases[l.id] = l
	if s.cut != nil { // cut off since the check above, so the grant was the last call to succeed
		l.arm()
	}
	return l, nil
}

func (l *lease) ID() coord.LeaseID     { return l.id }
func (l *lease) Done() <-chan struct{} { return l.done }

func (l *lease) Close(ctx context.Context) error {
	l.db.mu.Lock()
	l.abandoned = true
	l.arm() // if the revocation fails, the lease must still expire
	l.markDone()
	l.db.mu.Unlock()
	if err := l.owner.connected(ctx); err != nil {
		return fmt.Errorf("revoke lease: %w", err)
	}
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	l.expire()
	return nil
}

// arm starts the timer, unless it runs already or the lease is gone.
func (l *lease) arm() {
	if l.timer != nil || l.db.leases[l.id] != l {
		return
	}
	l.arming++
	arming := l.arming
	l.timer = time.AfterFunc(l.ttl, func() {
		l.db.mu.Lock()
		defer l.db.mu.Unlock()
		// A renewal in between has made this timer invalid.
		if l.arming == arming {
			l.expire()
		}
	})
}

// disarm stops the timer, like a renewal.
func (l *lease) disarm() {
	if l.abandoned || l.timer == nil {
		return
	}
	l.timer.Stop()
	l.timer = nil
	l.arming++
}

// expire deletes the lease and its keys at one revision.
func (l *lease) expire() {
	if l.db.leases[l.id] != l {
		return
	}
	delete(l.db.leases, l.id)
	if l.timer != nil {
		l.timer.Stop()
	}
	l.arming++
	var events []coord.Event
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		delete(l.db.keys, key)
		events = append(events, coord.Event{Deleted: true, KV: coord.KV{Key: key, Mod: l.db.rev + 1}})
	}
	l.db.publish(events)
	if l.owner.paused { // a stopped process learns of it when it continues
		l.owner.unseen = append(l.owner.unseen, l)
		return
	}
	l.markDone()
}

func (l *lease) markDone() {
	if !l.doneKnown {
		l.doneKnown = true
		close(l.done)
	}
}
