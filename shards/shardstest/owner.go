// Package shardstest gives tests of engines a process's ownership of shards that the test
// decides on: which it has, which it loses and when it notices.
//
// Its locks are real keys, so that what an engine commits under a lock that was lost is
// refused. It elects nobody and balances nothing, as a shards.Pool does.
//
// It is not for users and may change with any version.
package shardstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/shards"
)

// Store is what locks are kept in.
type Store interface {
	Commit(ctx context.Context, conds []coord.Condition, ops []coord.Op) (rev int64, err error)
}

// Owner is what one process owns. Its methods that engines call may be used by several
// goroutines.
type Owner struct {
	t       testing.TB
	store   Store
	root    string // of the keys of the deployment
	changes chan struct{}

	mu      sync.Mutex
	owned   map[int]shards.Lock
	leaving map[int]bool
}

// New returns the Owner of shards of the deployment below root.
func New(t testing.TB, store Store, root string, ns ...int) *Owner {
	t.Helper()
	o := &Owner{t: t, store: store, root: root, changes: make(chan struct{}, 1), owned: map[int]shards.Lock{}, leaving: map[int]bool{}}
	o.Take(ns...)
	return o
}

func (o *Owner) key(n int) string { return fmt.Sprintf("%s/shards/%05d", o.root, n) }

// Take locks shards, which nobody may have.
func (o *Owner) Take(ns ...int) {
	o.t.Helper()
	for _, n := range ns {
		key := o.key(n)
		// Clean-up may take shards, too, when the test's context has ended.
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

// Lose removes the locks of shards, from any process, as a lease that ran out does. A process
// does not notice before Forget.
func (o *Owner) Lose(ns ...int) {
	o.t.Helper()
	for _, n := range ns {
		if _, err := o.store.Commit(o.t.Context(), nil, []coord.Op{{Key: o.key(n), Delete: true}}); err != nil {
			o.t.Fatal(err)
		}
	}
}

// Forget is when the process notices that it has lost shards.
func (o *Owner) Forget(ns ...int) {
	o.mu.Lock()
	for _, n := range ns {
		delete(o.owned, n)
	}
	o.mu.Unlock()
	o.signal()
}

// Leave asks the engine to hand shards over.
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

// Owned returns the locks that the process believes to have.
func (o *Owner) Owned() map[int]shards.Lock {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.owned)
}

// Leaving returns the shards that must be handed over.
func (o *Owner) Leaving() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.leaving))
}

// Release hands a shard over.
func (o *Owner) Release(ctx context.Context, n int) error {
	o.mu.Lock()
	lock := o.owned[n]
	delete(o.owned, n)
	delete(o.leaving, n)
	o.mu.Unlock()
	_, err := o.store.Commit(ctx, []coord.Condition{lock.Condition()}, []coord.Op{{Key: lock.Key, Delete: true}})
	if errors.Is(err, coord.ErrConflict) {
		return nil // it was lost before
	}
	return err
}

// Changes is signalled when the shards have changed.
func (o *Owner) Changes() <-chan struct{} { return o.changes }
