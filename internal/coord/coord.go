// Package coord is the interface to the coordination store: a small, linearizable key-value store
// with revisions, conditional commits, leases and watches. Package etcdcoord implements it with
// etcd, package memcoord in memory. Both pass the suite in coordtest, so tests can simulate whole
// systems.
//
// Guarantees:
//
//   - Get, List and ListPage are linearizable.
//   - Commit is atomic. It compares all conditions and makes all operations at one revision, or it
//     changes nothing.
//   - The revision grows by one with each Commit that changes something, for the whole store.
//   - A Watch delivers every change after the list of its Follow, in order and without gaps.
//   - A key with a lease vanishes some time after its holder stops renewing the lease. That time
//     serves liveness only, and no safety rule may depend on it.
//
// The package does not know the meaning of keys. Packages shards and deployment define it. Begin to
// read with Store.
//
// It is not for users and may change with any version.
package coord

import (
	"context"
	"errors"
	"time"
)

// MaxOps is the maximum number of conditions and operations in one Commit together.
const MaxOps = 64

var (
	// ErrNotFound means that the key does not exist.
	ErrNotFound = errors.New("key not found")
	// ErrConflict means that a condition did not hold, and nothing was written. Read and decide
	// again.
	ErrConflict = errors.New("condition no longer holds")
	// ErrUnknown means that the commit may or may not have happened. Read to find out.
	ErrUnknown = errors.New("outcome of the commit is unknown")
	// ErrCompacted means that the watch is too far behind. Follow again.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrNoSpace means that the store is full and refuses writes. An operator must make room. This
	// commit had no effect, unless the error is also an ErrUnknown: the commit that fills the store
	// may have happened.
	ErrNoSpace = errors.New("no space left in the coordination store: nothing can be written, no upgrade can switch or abort")
	// ErrLeaseLost means that the lease has expired or was revoked.
	ErrLeaseLost = errors.New("lease is lost")
)

// ConflictError is the ErrConflict of Commit. It has the key of the first condition as it was when the
// commit failed, so a caller that only needs this key can decide again without a read.
type ConflictError struct {
	First KV // Mod is 0 if the key was absent
}

func (e *ConflictError) Error() string { return ErrConflict.Error() }

// Unwrap makes it an ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// LeaseID identifies a lease. Zero means no lease.
type LeaseID int64

// KV is a key with its value. Create and Mod are the revisions of its creation and of its last
// write. A key that was deleted and put again has a new Create.
type KV struct {
	Key    string
	Value  []byte
	Create int64
	Mod    int64
	Lease  LeaseID
}

// Condition compares a revision of a key with Revision. Zero: the key must be absent.
type Condition struct {
	Key      string
	Create   bool // compare Create instead of Mod
	Revision int64
	// Value, unless it is nil, must also be the key's value. A store that was restored from a backup
	// gives revisions again, so a revision that the caller learned earlier does not name one value.
	Value []byte
}

// Op puts a value or deletes the key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Lease  LeaseID
}

// Event is one change of a key. KV of a deletion has only Key and Mod.
type Event struct {
	Deleted bool
	KV      KV
}

// Lease is a lease that is renewed in the background from Grant until Close or its loss.
type Lease interface {
	ID() LeaseID
	// Done returns a channel that closes when the lease was closed or is known to be lost.
	Done() <-chan struct{}
	// Close revokes the lease. Its keys are deleted at once.
	Close(ctx context.Context) error
}

// Watch is a running watch of a prefix, which Store.Follow began. Next supports one caller at a time.
type Watch interface {
	// Next blocks until there are events. It returns them in revision order, with all events of one
	// revision in one call. ErrCompacted ends the watch.
	Next(ctx context.Context) ([]Event, error)
	Close()
}

// Store is the coordination store. Keys are paths separated by slashes.
type Store interface {
	// Get returns a key or ErrNotFound.
	Get(ctx context.Context, key string) (KV, error)
	// List returns the keys with a prefix, sorted by key. It also returns the revision of the store
	// at which they had these values.
	List(ctx context.Context, prefix string) ([]KV, int64, error)
	// ListPage returns the first keys with a prefix that sort after a key, at most limit of them. It
	// returns fewer only at the end of the prefix. An empty key is before all others.
	ListPage(ctx context.Context, prefix, after string, limit int) ([]KV, error)
	// Commit makes ops if all conditions hold, and returns the revision of the commit. Errors:
	// ErrConflict (as *ConflictError), ErrLeaseLost (an op names a lost lease), ErrNoSpace, ErrUnknown.
	Commit(ctx context.Context, conditions []Condition, ops []Op) (int64, error)
	// Follow lists the keys with a prefix as List does, and watches them: the watch delivers the
	// changes after the list. The watch lives until Close, and ctx limits only this call.
	Follow(ctx context.Context, prefix string) ([]KV, int64, Watch, error)
	// Grant creates a lease. ttl is its time to live, at least a second.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
}
