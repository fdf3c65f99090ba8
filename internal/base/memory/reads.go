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

// Counted returns a context that does not count its reads. It is for a caller that takes memory
// before it reads.
func Counted(ctx context.Context) context.Context { return Into(ctx, &Reads{}) }

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
	if !r.share.Take(bytes) {
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

// Room returns the number of bytes that would fit now. Another request may take them first.
func (r *Reads) Room() int64 {
	if !r.Counts() {
		return math.MaxInt64
	}
	b := r.share.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, min(r.share.left, b.left-r.share.keep))
}

// Possible reports whether that many more bytes could ever fit, with no bytes held by other
// requests and only these reads held by this one. If it returns false, a retry is pointless.
func (r *Reads) Possible(bytes int64) bool {
	if !r.Counts() {
		return true
	}
	// The whole request counts, not only its next piece.
	bytes += r.Held()
	b := r.share.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes <= min(r.share.left+r.share.taken, b.total-r.share.keep)
}
