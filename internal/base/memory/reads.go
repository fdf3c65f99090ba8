package memory

import (
	"context"
	"errors"
	"math"
	"sync"
)

// ErrNoRoom means that other requests hold the memory that this one needs. A retry may succeed.
var ErrNoRoom = errors.New("too many large requests at the same time: try again")

// Reads counts the bytes that a request has read from its database and still holds. Stores add the
// bytes that they read. The code that asked for them gives them back when it drops them. Nil and
// the zero value count nothing. It is safe for concurrent use.
type Reads struct {
	share *Share
	paid  int64 // bytes that the caller has taken already

	mu    sync.Mutex
	bytes int64
}

// Read returns a context that counts its reads, and the counter. The caller must Drop the
// counter once it holds none of these bytes any longer. Without Drop, the end of the request gives
// the bytes back.
func Read(ctx context.Context) (context.Context, *Reads) {
	r := &Reads{share: Of(ctx)}
	return Into(ctx, r), r
}

// Into returns a context that counts its reads in r.
func Into(ctx context.Context, r *Reads) context.Context {
	return context.WithValue(ctx, readsKey{}, r)
}

// Beyond is Read for a caller that has taken memory for its reads already. Reads takes only what
// exceeds these bytes.
func Beyond(ctx context.Context, bytes int64) (context.Context, *Reads) {
	r := &Reads{share: Of(ctx), paid: bytes}
	return Into(ctx, r), r
}

type readsKey struct{}

// ReadsOf returns the counter of a context, or nil if it has none.
func ReadsOf(ctx context.Context) *Reads {
	r, _ := ctx.Value(readsKey{}).(*Reads)
	return r
}

// Counts reports whether r counts anything.
func (r *Reads) Counts() bool { return r != nil && r.share != nil }

// Take takes that many more bytes and reports whether they fit. A negative number gives bytes back.
func (r *Reads) Take(bytes int64) bool {
	if !r.Counts() {
		return true
	}
	// One lock for both counts: a concurrent Keep must not give back bytes that are not counted
	// yet.
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(bytes)
}

func (r *Reads) take(bytes int64) bool {
	if !r.share.Take(max(0, r.bytes+bytes-r.paid) - max(0, r.bytes-r.paid)) {
		return false
	}
	r.bytes += bytes
	return true
}

// Keep gives back all but that many bytes.
func (r *Reads) Keep(bytes int64) {
	if !r.Counts() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Keep must never take bytes: they may not fit.
	if r.bytes > bytes {
		r.take(bytes - r.bytes)
	}
}

// Drop gives back all bytes.
func (r *Reads) Drop() { r.Keep(0) }

// Held returns the number of bytes held.
func (r *Reads) Held() int64 {
	if !r.Counts() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Paid returns the number of bytes that still fit into the memory that the caller has taken.
func (r *Reads) Paid() int64 {
	if !r.Counts() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.paid-r.bytes)
}

// Room returns the number of bytes that would fit now. Another request may take them first.
func (r *Reads) Room() int64 {
	if !r.Counts() {
		return math.MaxInt64
	}
	paid := r.Paid()
	b := r.share.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return paid + max(0, min(r.share.left, b.left-r.share.keep))
}

// Possible reports whether that many more bytes could ever fit, with no bytes held by other
// requests. If it returns false, a retry is pointless: this request itself holds the rest.
func (r *Reads) Possible(bytes int64) bool {
	if !r.Counts() {
		return true
	}
	return r.share.Possible(bytes - r.Paid())
}
