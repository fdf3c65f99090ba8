// Package shardstest provides a shard ownership under the control of a test. The test decides which
// shards a process owns, when it loses them and when it notices. A shard is one part of the work,
// owned by one process at a time through its lock.
//
// The locks are real keys of the store. A commit of an engine under a lost lock is therefore
// refused. Unlike shards.Pool, the package elects no owner and balances no load.
package shardstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/shards"
)

// Store keeps the locks.
type Store interface {
	Commit(ctx context.Context, conds []coord.Condition, ops []coord.Op) (rev int64, err error)
}

// Owner is the ownership of one process. Engines may call its methods from several goroutines.
type Owner struct {
	t       testing.TB
	store   Store
	root    string // prefix of the deployment's keys
	changes chan struct{}

	mu      sync.Mutex
	owned   map[int]shards.Lock
	leaving map[int]bool
}

// New returns the Owner of the given shards of the deployment below root.
func New(t testing.TB, store Store, root string, ns ...int) *Owner {
	t.Helper()
	o := &Owner{t: t, store: store, root: root, changes: make(chan struct{}, 1), owned: map[int]shards.Lock{}, leaving: map[int]bool{}}
	o.Take(ns...)
	return o
}

func (o *Owner) key(n int) string { return fmt.Sprintf("%s/shards/%05d", o.root, n) }

// Take locks shards, which must be free.
func (o *Owner) Take(ns ...int) {
	o.t.Helper()
	for _, n := range ns {
		key := o.key(n)
		// Cleanup functions may take shards, too, after the test's context has ended.
		rev, err := o.store.Commit(context.WithoutCancel(o.t.Context()), []coord.Condition{{Key: key}}, []coord.Op{{Key: key}})
		if err != nil {
			o.t.Fatal(err)
		}
		o.mu.Lock()
		o.owned[n] = shards.Lock{Shard: n, Key: key, Create: rev}
		o.mu.Unlock()
	}
	o.signal()
}

// Lose deletes the locks of shards, whichever process has them, like a lease that runs out. The
// owner does not notice before Forget.
func (o *Owner) Lose(ns ...int) {
	o.t.Helper()
	for _, n := range ns {
		// Without a condition: the store, not the owner, takes the lock away.
		if _, err := o.store.Commit(o.t.Context(), nil, []coord.Op{{Key: o.key(n), Delete: true}}); err != nil {
			o.t.Fatal(err)
		}
	}
}

// Forget makes the owner notice that it has lost shards.
func (o *Owner) Forget(ns ...int) {
	o.mu.Lock()
	for _, n := range ns {
		delete(o.owned, n)
	}
	o.mu.Unlock()
	o.signal()
}

// Leave asks the engine to release shards.
func (o *Owner) Leave(ns ...int) {
	o.mu.Lock()
	for _, n := range ns {
		o.leaving[n] = true
	}
	o.mu.Unlock()
	o.signal()
}

func (o *Owner) signal() {
	select {
	case o.changes <- struct{}{}:
	default:
	}
}

// Owned returns the locks that the owner believes it has.
func (o *Owner) Owned() map[int]shards.Lock {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.owned)
}

// Leaving returns the shards that the engine must release.
func (o *Owner) Leaving() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.leaving))
}

// Release deletes the lock of a shard. A lock that was lost before is no error.
func (o *Owner) Release(ctx context.Context, n int) error {
	o.mu.Lock()
	lock := o.owned[n]
	// Before the commit, as in Pool: Owned omits the shard from the start of the call.
	delete(o.owned, n)
	delete(o.leaving, n)
	o.mu.Unlock()
	_, err := o.store.Commit(ctx, []coord.Condition{lock.Condition()}, []coord.Op{{Key: lock.Key, Delete: true}})
	if errors.Is(err, coord.ErrConflict) {
		return nil // it was lost before
	}
	return err
}

// Changes receives a value after the shards have changed.
func (o *Owner) Changes() <-chan struct{} { return o.changes }
