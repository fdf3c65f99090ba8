// Package memory counts the bytes that requests hold, against one budget of a process and a
// bound for each request.
//
// A listener gives each request a Share and puts it into the request's context. Code that keeps
// bytes for the request, such as a body, a captured response or the names of a watch, takes them
// from the Share before it keeps them, and gives them back when it drops them. The end of the
// request gives back the rest. Without room, the code refuses the request or forgets what it can
// do without.
//
// Names that watches remember only spare work, and live as long as the watches. They never take
// the last half of the budget, which stays for requests that cannot do without.
//
// Without a Share in the context nothing is counted: background work is not a client's.
//
// It does not own the bounds (package limits) or the answer to a client (package refusal).
package memory

import (
	"context"
	"sync"
)

// Budget is how many bytes all requests together may hold.
type Budget struct {
	total int64
	mu    sync.Mutex
	left  int64
}

// NewBudget makes a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{total: bytes, left: bytes} }

// Left is how many bytes are free.
func (b *Budget) Left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}

// Share is what one request holds. A nil Share counts nothing and has room for everything. Its
// methods may be called concurrently.
type Share struct {
	budget *Budget
	// Guarded by budget.mu.
	left     int64 // of the request's own bound
	taken    int64
	reserved int64 // of taken, for a body that is not decoded yet
	keep     int64 // of the budget, for others
	ended    bool
}

// Share begins a request that may hold most bytes. End must be called.
func (b *Budget) Share(most int64) *Share { return &Share{budget: b, left: most} }

// Leave makes later Takes leave so many bytes of the budget free, for requests that come before this
// one.
func (s *Share) Leave(bytes int64) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.keep = bytes
}

// Take reports whether so many bytes more fit in, and takes them; fewer than none gives back.
func (s *Share) Take(bytes int64) bool { return s.take(bytes, false) }

// take is Take; if spare, it leaves half of the budget to others.
func (s *Share) take(bytes int64, spare bool) bool {
	if s == nil {
		return true
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	keep := s.keep
	if spare {
		keep = max(keep, s.budget.total/2)
	}
	free := s.budget.left - keep
	switch {
	case s.ended:
		return bytes <= 0 // what is given back late was given back already
	case bytes > 0 && (bytes > free || bytes > s.left):
		return false
	}
	s.add(bytes)
	return true
}

// add counts bytes that fit in. budget.mu is held.
func (s *Share) add(bytes int64) {
	s.budget.left -= bytes
	s.left -= bytes
	s.taken += bytes
}

// Reserve is Take for the bytes that a compressed body may become.
func (s *Share) Reserve(bytes int64) bool {
	if s == nil {
		return true
	}
	if !s.Take(bytes) {
		return false
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.reserved += bytes
	return true
}

// Settle keeps so many bytes of what Reserve took, and gives back the rest. A request calls it once
// its body is decoded, or no longer needed.
func (s *Share) Settle(bytes int64) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if back := s.reserved - bytes; back > 0 && !s.ended {
		s.reserved = bytes
		s.add(-back)
	}
}

// End gives back all that the request has taken.
func (s *Share) End() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.left += s.taken
	s.taken, s.ended = 0, true
}

// Hold begins one part of what a request holds.
func (s *Share) Hold() *Held { return &Held{share: s} }

// Held is one part of what a request holds. One goroutine at a time may use it.
type Held struct {
	share *Share
	bytes int64
}

// Set changes how many bytes are held. Without room for them it changes nothing and reports false;
// fewer than before always fit.
func (h *Held) Set(bytes int64) bool { return h.set(bytes, false) }

// SetSpare is Set for bytes that the request can do without. It leaves half of the budget to others.
func (h *Held) SetSpare(bytes int64) bool { return h.set(bytes, true) }

func (h *Held) set(bytes int64, spare bool) bool {
	if !h.share.take(bytes-h.bytes, spare) {
		return false
	}
	h.bytes = bytes
	return true
}

// Possible reports whether Set has room for so many bytes while no other request holds any. If not,
// another attempt is in vain.
func (h *Held) Possible(bytes int64) bool {
	s := h.share
	if s == nil {
		return true
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return bytes-h.bytes <= min(s.left, s.budget.total-s.taken)
}

type key struct{}

// With puts the share of a request into its context.
func With(ctx context.Context, s *Share) context.Context { return context.WithValue(ctx, key{}, s) }

// Of is the share of the request that a context belongs to; nil: nothing is counted.
func Of(ctx context.Context) *Share {
	s, _ := ctx.Value(key{}).(*Share)
	return s
}
