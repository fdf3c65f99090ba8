// Package coord is the coordination seam: a small, linearizable, revisioned key-value
// store with conditional commits, leases and watches. etcdcoord serves it from etcd,
// memcoord from memory, and both pass the suite in coordtest, so that whole systems
// can be simulated.
//
// Guarantees: Get and List are linearizable. Commit is atomic: all conditions are
// compared and all operations done at one revision, or nothing. Revisions grow by one
// with every effective Commit of the whole store. A Watch delivers every change after
// a revision, in order, none missing. A key that carries a lease is gone some time
// after its holder stops renewing it; that is a matter of liveness only, and no safety
// rule may rest on when it happens.
//
// It does not know what the keys mean: that is for shards and deployment.
//
// It is not for users and may change with any version.
package coord

import (
	"context"
	"errors"
	"time"
)

// MaxOps is the most conditions plus operations that one Commit may have.
const MaxOps = 64

var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("key not found")
	// ErrConflict: a condition did not hold; nothing was written. Read and decide again.
	ErrConflict = errors.New("condition no longer holds")
	// ErrUnknown: the commit may have happened. Resolve it by reading.
	ErrUnknown = errors.New("outcome of the commit is unknown")
	// ErrCompacted: the watch is too far behind. List again, then watch from there.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrNoSpace: the store is full and takes no writes; this one had no effect. Somebody has
	// to make room.
	ErrNoSpace = errors.New("no space left in the coordination store: nothing can be written, no upgrade can switch or abort")
	// ErrLeaseLost: the lease has expired or was revoked.
	ErrLeaseLost = errors.New("lease is lost")
)

// LeaseID names a lease. Zero is none.
type LeaseID int64

// KV is a key as found. Create and Mod are the revisions at which it was created and
// last written; a key that was deleted and put again has a new Create.
type KV struct {
	Key    string
	Value  []byte
	Create int64
	Mod    int64
	Lease  LeaseID
}

// Condition compares one revision of a key with Revision. Zero means: is absent.
type Condition struct {
	Key      string
	Create   bool // compare the Create revision instead of Mod
	Revision int64
}

// Op puts a value, or deletes the key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Lease  LeaseID
}

// Event is one change of a key. For a deletion KV has only Key and Mod.
type Event struct {
	Deleted bool
	KV      KV
}

// Lease is kept alive in the background from Grant until Close or loss.
type Lease interface {
	ID() LeaseID
	// Done is closed when the lease is known to be lost or was closed.
	Done() <-chan struct{}
	// Close revokes the lease; its keys are deleted at once.
	Close(ctx context.Context) error
}

// Watch is a running watch.
type Watch interface {
	// Next blocks for the next events, in revision order, all events of one revision in
	// one call. ErrCompacted ends the watch.
	Next(ctx context.Context) ([]Event, error)
	Close()
}

// Store is the coordination store. Keys are slash-separated paths.
type Store interface {
	// Get returns a key or ErrNotFound.
	Get(ctx context.Context, key string) (KV, error)
	// List returns the keys with a prefix, ordered by key, and the store's revision at
	// which they were all as returned.
	List(ctx context.Context, prefix string) ([]KV, int64, error)
	// Commit does ops if all conditions hold, and returns the revision of the commit.
	// ErrConflict, ErrLeaseLost (an op names a lease that is gone), ErrNoSpace, ErrUnknown.
	Commit(ctx context.Context, conditions []Condition, ops []Op) (int64, error)
	// Watch delivers the changes below prefix after a revision (exclusive).
	Watch(ctx context.Context, prefix string, after int64) (Watch, error)
	// Grant makes a lease of a time to live, at least a second.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
}
