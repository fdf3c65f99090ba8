package memcoord

import (
	"context"

	"dbcontroller.dev/internal/coord"
)

// Fault is the fault of a Commit.
type Fault int

const (
	// Deliver means no fault.
	Deliver Fault = iota
	// LoseRequest skips the commit, and the caller gets ErrUnknown.
	LoseRequest
	// LoseAnswer makes the commit, or finds a conflict, and the caller gets ErrUnknown.
	LoseAnswer
)

// OnCommit lets f decide about the fault of each later Commit of this client. nil removes f. The
// store calls f without locks, so f may use other clients to commit in between.
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

// Cut disconnects this client. Its calls wait for Heal or for their ctx, and its watches are
// silent. Its leases expire one time to live from now, and the client notices that by its own
// clock.
func (s *Store) Cut() { s.disconnect(false) }

// Pause is Cut for a stopped process (SIGSTOP, a long garbage collection). Its Lease handles end
// only at Heal. The caller's own goroutines go on until their next call of the store, which waits.
func (s *Store) Pause() { s.disconnect(true) }

func (s *Store) disconnect(paused bool) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.paused = paused
	// Cut and Pause may follow each other before a Heal.
	if s.cut == nil {
		s.cut = make(chan struct{})
	}
	for _, l := range s.db.leases {
		if l.owner == s {
			l.arm()
		}
	}
}

// Heal ends Cut or Pause. Expired leases are lost, and the others go on.
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
	// A paused process learns only now that its leases ended.
	for _, l := range s.unseen {
		l.markDone()
	}
	s.unseen = nil
}

// Abandon stops the renewal of a lease, like the death of its holder. The lease expires one time to
// live from now.
func (s *Store) Abandon(id coord.LeaseID) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if l := s.db.leases[id]; l != nil {
		// No Heal may renew the lease again.
		l.abandoned = true
		l.arm()
	}
}

// Expire ends a lease at once, like an expiry.
func (s *Store) Expire(id coord.LeaseID) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if l := s.db.leases[id]; l != nil {
		l.expire()
	}
}

// connected waits until the client is connected.
func (s *Store) connected(ctx context.Context) error {
	for {
		s.db.mu.Lock()
		// Wait without the lock, so that other clients and Heal can go on.
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
