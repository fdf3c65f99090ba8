package proxy

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// rest is what the proxy has read of a cursor before its client asked for it.
type rest struct {
	cursor  cursor
	more    bsoncore.Document // the command that reads on, with the names of the place
	by      *ordered          // of the query and how far its client has come; nil: it cannot go on elsewhere. Whoever reads has it
	release func(int64)       // gives memory back
	faults  *faults
	reading chan struct{} // has an element while a command reads with the cursor

	mu      sync.Mutex
	batches []ahead
	size    int64     // of all batches
	end     bool      // the server has nothing more
	lost    bool      // a reply of the server was lost, and its documents with it
	dead    bool      // the server knows the cursor no longer
	gone    bool      // the client needs it no longer, or did not come for long
	taken   time.Time // when the client took something, or a batch was added
	expiry  *time.Timer
}

// ahead is a batch that was read. Its documents are parts of one reply, whose memory they keep as long as one of
// them is left.
type ahead struct {
	docs []bsoncore.Document
	size int64
}

// lock waits until no other command reads with the cursor.
func (r *rest) lock(ctx context.Context) error {
	select {
	case r.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rest) unlock() { <-r.reading }

// lose makes the next command that reads with the cursor fail.
func (r *rest) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = true
}

// die notes that the server knows the cursor no longer.
func (r *rest) die() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
}

// hopeless reports whether the cursor is of no further use: its server has ended it, its client has everything that
// was read ahead, and it cannot go on elsewhere.
func (r *rest) hopeless() bool {
	select {
	case r.reading <- struct{}{}:
		defer r.unlock()
	default: // whoever reads with it learns of its end
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead && len(r.batches) == 0 && (r.by == nil || r.by.lacks)
}

// whole reports whether nothing is left at the server.
func (r *rest) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// broken reports whether documents of the cursor are lost.
func (r *rest) broken() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost || r.gone
}

// usable reports whether another batch may be read.
func (r *rest) usable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.end && !r.lost && !r.dead && !r.gone && r.size < mostAhead
}

// add keeps a batch for which reserved bytes were reserved.
func (r *rest) add(docs []bsoncore.Document, reserved int64, end bool) {
	size := int64(0)
	for _, d := range docs {
		size += int64(len(d))
	}
	size = min(size, reserved) // what was not reserved cannot be given back
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		r.release(reserved)
		return
	}
	r.release(reserved - size)
	r.end = end
	if len(docs) > 0 {
		r.batches, r.size = append(r.batches, ahead{docs, size}), r.size+size
	}
	r.taken = time.Now()
	if r.expiry == nil {
		r.expiry = time.AfterFunc(keptAhead, func() { _ = r.faults.run("the end of an unused cursor", r.expire) })
	}
}

// expire drops what was read if the client has taken nothing for long. Otherwise it looks again later.
func (r *rest) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := keptAhead - time.Since(r.taken)
	switch {
	case r.gone:
	case len(r.batches) == 0 && !r.end: // the client reads at the server again
		r.expiry = nil
	case left > 0:
		r.expiry.Reset(left)
	default:
		r.drop()
	}
}

// take removes documents of one batch, at most so many; 0: all of it. ok is false if nothing was read ahead.
func (r *rest) take(most int64) (docs []bsoncore.Document, end, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || len(r.batches) == 0 {
		return nil, r.end, r.end && !r.gone
	}
	r.taken = time.Now()
	first := &r.batches[0]
	n := int64(len(first.docs))
	if most > 0 {
		n = min(n, most)
	}
	docs, first.docs = first.docs[:n], first.docs[n:]
	if len(first.docs) == 0 {
		r.release(first.size)
		r.size -= first.size
		r.batches = r.batches[1:]
	}
	return docs, r.end && len(r.batches) == 0, true
}

// discard drops what was read.
func (r *rest) discard() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}

// drop is discard for a caller that holds mu.
func (r *rest) drop() {
	if r.expiry != nil {
		r.expiry.Stop()
	}
	r.release(r.size)
	r.batches, r.size, r.gone = nil, 0, true
}
