package memcoord

import (
	"context"

	"dbcontroller.dev/coord"
)

// Fault is what happens to a Commit on its way.
type Fault int

const (
	// Deliver: nothing special.
	Deliver Fault = iota
	// LoseRequest: nothing is done, and the caller gets ErrUnknown.
	LoseRequest
	// LoseAnswer: it is done (or conflicts), and the caller gets ErrUnknown.
	LoseAnswer
)

// OnCommit has f decide over each Commit of this client from now on; nil ends that.
// f is called outside all locks and may use other clients, to get in between.
func (s *Store) OnCommit(f func([]coord.Condition, []coord.Op) Fault) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.fault = f
}

func (s *Store) nextFault(conditions []coord.Condition, ops []coord.Op) Fault {
	s.db.mu.Lock()
	f := s.fault
	s.db.mu.Unlock()
	if f == nil {
		return Deliver
	}
	return f(conditions, ops)
}

// Cut takes the network away from this client: its calls wait for Heal or for their
// ctx, its watches are silent, and its leases run out a time to live from now, which
// the client notices by its own clock.
func (s *Store) Cut() { s.disconnect(false) }

// Pause is Cut for a process that is stopped (SIGSTOP, a long collection): its Lease
// handles end only when Heal lets it go on. What the caller's own goroutines do
// meanwhile is up to the caller; each is held at its next call of the store.
func (s *Store) Pause() { s.disconnect(true) }

func (s *Store) disconnect(paused bool) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.paused = paused
	if s.cut == nil {
		s.cut = make(chan struct{})
	}
	for _, l := range s.db.leases {
		if l.owner == s {
			l.arm()
		}
	}
}

// Heal ends Cut or Pause. Leases that ran out meanwhile are lost, the others go on.
func (s *Store) Heal() {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.cut == nil {
		return
	}
	close(s.cut)
	s.cut, s.paused = nil, false
	for _, l := range s.db.leases {
		if l.owner == s {
			l.disarm()
		}
	}
	for _, l := range s.unseen {
		l.markDone()
	}
	s.unseen = nil
}

// Abandon stops renewing a lease, as if the process that holds it had died: it is gone
// a time to live from now.
func (s *Store) Abandon(id coord.LeaseID) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if l := s.db.leases[id]; l != nil {
		l.abandoned = true
		l.arm()
	}
}

// Expire ends a lease at once, as if its time had run out.
func (s *Store) Expire(id coord.LeaseID) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if l := s.db.leases[id]; l != nil {
		l.expire()
	}
}

// connected waits until the client is not cut off.
func (s *Store) connected(ctx context.Context) error {
	for {
		s.db.mu.Lock()
		cut := s.cut
		s.db.mu.Unlock()
		if cut == nil {
			return ctx.Err()
		}
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
