package memory

import (
	"context"
	"errors"
	"math"
	"sync"
)

// ErrNoRoom: others hold the memory that a request needs. It may find room later.
var ErrNoRoom = errors.New("too many large requests at the same time: try again")

// Reads is what a request has read from its database and still holds. Stores add what they read,
// and the code that asked for it gives it back when it drops it. The zero Reads, and nil, count
// nothing. Its methods may be called concurrently.
type Reads struct {
	share *Share

	mu    sync.Mutex
	bytes int64
}

// Read begins to count what is read with the context that it returns. The caller drops it once it
// holds nothing of that any longer, and keeps it for a request that is about to end.
func Read(ctx context.Context) (context.Context, *Reads) {
	r := &Reads{share: Of(ctx)}
	return Into(ctx, r), r
}

// Into has what is read with the context that it returns counted in r.
func Into(ctx context.Context, r *Reads) context.Context {
	return context.WithValue(ctx, readsKey{}, r)
}

// Counted returns a context for a caller that has taken room before it reads.
func Counted(ctx context.Context) context.Context { return Into(ctx, &Reads{}) }

type readsKey struct{}

// ReadsOf is what counts the reads of a context; nil: nobody asked for it.
func ReadsOf(ctx context.Context) *Reads {
	r, _ := ctx.Value(readsKey{}).(*Reads)
	return r
}

// Counts reports whether anything is counted.
func (r *Reads) Counts() bool { return r != nil && r.share != nil }

// Take reports whether so many bytes more fit in, and takes them; fewer than none gives back.
func (r *Reads) Take(bytes int64) bool {
	if !r.Counts() {
		return true
	}
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

// Keep gives back all but so many bytes.
func (r *Reads) Keep(bytes int64) {
	if !r.Counts() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes > bytes {
		r.take(bytes - r.bytes)
	}
}

// Drop gives everything back.
func (r *Reads) Drop() { r.Keep(0) }

// Held is how many bytes are held.
func (r *Reads) Held() int64 {
	if !r.Counts() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Room is how many bytes more would fit in now.
func (r *Reads) Room() int64 {
	if !r.Counts() {
		return math.MaxInt64
	}
	b := r.share.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, min(r.share.left, b.left-r.share.keep))
}

// Possible reports whether so many bytes more would fit in while no other request holds any, and
// this one nothing else. If not, another attempt is in vain.
func (r *Reads) Possible(bytes int64) bool {
	if !r.Counts() {
		return true
	}
	bytes += r.Held()
	b := r.share.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes <= min(r.share.left+r.share.taken, b.total-r.share.keep)
}
