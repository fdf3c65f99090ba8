// Package memory counts the bytes held for requests, against one budget of the process and one
// limit for each request.
//
// A listener gives each request a Share and puts it into the request's context, and reads its body
// through a Body. Code that keeps bytes for the request, such as a captured response or the names of
// a watch, takes them from the Share beforehand. It gives them back when it drops them, and the end of the request
// gives back the rest. Without room, the code refuses the request or drops optional data.
//
// Names remembered by a watch only save work, and live as long as the watch. They never take the
// last half of the budget, which stays free for requests that need it.
//
// Without a Share in the context the package counts nothing: background work belongs to no client.
//
// The package does not own the limits (package limits) or the form of an answer (package refusal).
// Begin to read at Share.
package memory

import (
	"context"
	"sync"
)

// Budget limits the bytes held for all requests together. It is safe for concurrent use.
type Budget struct {
	total int64
	mu    sync.Mutex
	left  int64
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{total: bytes, left: bytes} }

// Left returns the number of free bytes.
func (b *Budget) Left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}

// Share counts the bytes held for one request. A nil Share counts nothing and has room for
// everything. It is safe for concurrent use.
type Share struct {
	budget *Budget
	// Guarded by budget.mu.
	left     int64 // of the request's own limit
	taken    int64
	reserved int64 // part of taken, for the body and what it is decoded to
	keep     int64 // of the budget, for other requests
	ended    bool
}

// Share returns the share of a request that may hold up to most bytes. The caller must End it.
func (b *Budget) Share(most int64) *Share { return &Share{budget: b, left: most} }

// Leave makes later calls of Take keep that many bytes of the budget free for earlier requests.
func (s *Share) Leave(bytes int64) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.keep = bytes
}

// Take takes that many more bytes and reports whether they fit. A negative number gives bytes back.
func (s *Share) Take(bytes int64) bool { return s.take(bytes, false) }

// take is Take. If spare is true, it leaves half of the budget to others.
func (s *Share) take(bytes int64, spare bool) bool {
	if s == nil {
		return true
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	keep := s.keep
	// Optional bytes must never starve a request that needs the rest.
	if spare {
		keep = max(keep, s.budget.total/2)
	}
	free := s.budget.left - keep
	switch {
	case s.ended:
		return bytes <= 0 // End has already given everything back
	case bytes > 0 && (bytes > free || bytes > s.left):
		return false
	}
	s.add(bytes)
	return true
}

// Possible reports whether Take could ever succeed, with no bytes held by other requests. If it
// returns false, a retry is pointless.
func (s *Share) Possible(bytes int64) bool {
	if s == nil {
		return true
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	// The budget without other requests: all of it, minus what this request holds and what it must
	// leave.
	return bytes <= min(s.left, s.budget.total-s.keep-s.taken)
}

// add counts bytes without a check. The caller holds budget.mu.
func (s *Share) add(bytes int64) {
	s.budget.left -= bytes
	s.left -= bytes
	s.taken += bytes
}

// Reserve is Take for the memory of a request's body. Settle gives it back.
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

// Settle keeps that many of the reserved bytes and gives back the rest. A request calls it once its
// body is decoded, or no longer needed.
func (s *Share) Settle(bytes int64) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	// After End the bytes are already back. To return them twice would let the budget grow.
	if back := s.reserved - bytes; back > 0 && !s.ended {
		s.reserved = bytes
		s.add(-back)
	}
}

// Body returns the account of the request's body. Settle gives its bytes back.
func (s *Share) Body() Account { return &bodyAccount{share: s} }

// bodyAccount is not safe for concurrent use. Body has a lock.
type bodyAccount struct {
	share *Share
	bytes int64
}

func (a *bodyAccount) Set(bytes int64) bool {
	if bytes > a.bytes && !a.share.Reserve(bytes-a.bytes) {
		return false
	}
	if bytes < a.bytes {
		a.share.Settle(bytes)
	}
	a.bytes = bytes
	return true
}

func (a *bodyAccount) Possible(bytes int64) bool { return a.share.Possible(bytes - a.bytes) }

// End gives back all bytes that the request took. Later calls of Take fail.
func (s *Share) End() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	// Settle and late calls of Take must not return these bytes again, so taken becomes 0.
	s.budget.left += s.taken
	s.taken, s.ended = 0, true
}

// Hold begins to count one part of a request's bytes.
func (s *Share) Hold() *Held { return &Held{share: s} }

// Held counts one part of a request's bytes. It is not safe for concurrent use.
type Held struct {
	share *Share
	bytes int64
}

// Set changes the number of held bytes. Without room it changes nothing and returns false. A
// smaller number always fits.
func (h *Held) Set(bytes int64) bool { return h.set(bytes, false) }

// SetSpare is Set for optional bytes. It leaves half of the budget to other requests.
func (h *Held) SetSpare(bytes int64) bool { return h.set(bytes, true) }

func (h *Held) set(bytes int64, spare bool) bool {
	if !h.share.take(bytes-h.bytes, spare) {
		return false
	}
	h.bytes = bytes
	return true
}

// Possible is Share.Possible for Set.
func (h *Held) Possible(bytes int64) bool { return h.share.Possible(bytes - h.bytes) }

type key struct{}

// With returns a context that carries a request's share.
func With(ctx context.Context, s *Share) context.Context { return context.WithValue(ctx, key{}, s) }

// Of returns the share in the context. Nil means that nothing is counted.
func Of(ctx context.Context) *Share {
	s, _ := ctx.Value(key{}).(*Share)
	return s
}
