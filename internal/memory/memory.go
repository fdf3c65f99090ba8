// Package memory counts the bytes that requests hold, against one budget of a process and a
// bound for each request.
//
// A listener gives each request a Share and puts it into the request's context. Code that keeps
// bytes for the request, such as a body, a captured response or the names of a watch, takes them
// from the Share before it keeps them, and gives them back when it drops them. The end of the
// request gives back the rest. Without room, the code refuses the request or forgets what it can
// do without.
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
	mu   sync.Mutex
	left int64
}

// NewBudget makes a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

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
	left  int64 // of the request's own bound
	taken int64
	keep  int64 // of the budget, for others
	ended bool
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
func (s *Share) Take(bytes int64) bool {
	if s == nil {
		return true
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	switch {
	case s.ended:
		return bytes <= 0 // what is given back late was given back already
	case bytes > 0 && (bytes > s.budget.left-s.keep || bytes > s.left):
		return false
	}
	s.budget.left -= bytes
	s.left -= bytes
	s.taken += bytes
	return true
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
func (h *Held) Set(bytes int64) bool {
	if !h.share.Take(bytes - h.bytes) {
		return false
	}
	h.bytes = bytes
	return true
}

type key struct{}

// With puts the share of a request into its context.
func With(ctx context.Context, s *Share) context.Context { return context.WithValue(ctx, key{}, s) }

// Of is the share of the request that a context belongs to; nil: nothing is counted.
func Of(ctx context.Context) *Share {
	s, _ := ctx.Value(key{}).(*Share)
	return s
}
