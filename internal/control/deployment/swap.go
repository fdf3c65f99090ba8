package deployment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"dbcontroller.dev/internal/coord"
)

// lastKnown holds the values of keys that this process has read or stored last. Any of them may be
// outdated. It saves swap a read: while a switch holds writes, each transition of the record and each
// acknowledgement costs one call of the store and not two. A value that it does not hold costs that
// read and nothing else.
type lastKnown struct {
	maxKeys, maxBytes int // number of values, and size of each

	mu  sync.Mutex
	all map[string]coord.KV
}

func (k *lastKnown) get(key string) (coord.KV, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kv, ok := k.all[key]
	return kv, ok
}

// set keeps a value unless a later one is known: a read or a watch may deliver what was stored before
// this process's latest commit. A store that was restored goes back in its revisions. The value from
// before is then kept until a commit fails on it, which forgets it.
func (k *lastKnown) set(kv coord.KV) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[kv.Key].Mod > kv.Mod {
		return
	}
	delete(k.all, kv.Key)
	if len(kv.Value) > k.maxBytes {
		return
	}
	// Keys of clients come and go. Forgetting all of them is simple, and rare.
	if k.all == nil || len(k.all) >= k.maxKeys {
		k.all = map[string]coord.KV{}
	}
	k.all[kv.Key] = kv
}

func (k *lastKnown) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, key)
}

// read returns the stored value of a key, with revision 0 if the key is absent.
func (k *lastKnown) read(ctx context.Context, store coord.Store, key string) (coord.KV, error) {
	kv, err := store.Get(ctx, key)
	switch {
	case err == nil:
		k.set(kv)
	case errors.Is(err, coord.ErrNotFound):
		k.forget(key)
		return coord.KV{Key: key}, nil
	}
	return kv, err
}

// change returns the operation on a key that has the value kv, or nil if nothing is to change.
// kv.Mod is 0 if the key is absent. failed is the error of the last commit, nil before the first.
type change func(kv coord.KV, failed error) (*coord.Op, error)

// swap changes a key by compare-and-swap, and returns the key as it then is. A late change therefore
// cannot overwrite a newer value. It tries the last known value first. After a conflict or an unknown
// outcome it decides again on the stored value, until ctx ends. A conflict brings that value along, so
// processes that change the key at the same time do not read. An error of decide, or a decision to
// change nothing, counts only for a stored value.
//
// conditions are further conditions of the commit. ErrOwnership means that one of them does not hold.
// swap returns coord.ErrUnknown only if ctx ended or the store was lost before it could read the
// outcome.
func (k *lastKnown) swap(ctx context.Context, store coord.Store, key string, conditions []coord.Condition, decide change) (coord.KV, error) {
	var failed error         // of the last commit
	var base, tried coord.KV // the key before the last commit, and as the commit would leave it
	wait := newBackOff()
	kv, known := k.get(key)
	read := !known
	for {
		if read {
			var err error
			if kv, err = k.read(ctx, store, key); err != nil {
				return kv, unresolved(failed, err)
			}
		}
		condition := coord.Condition{Key: key, Revision: kv.Mod}
		// A restored store gives revisions again, so those learned earlier do not name one value.
		if !read {
			condition.Value = kv.Value
		}
		switch {
		// The commit with the unknown outcome has happened.
		case errors.Is(failed, coord.ErrUnknown) && kv.Mod > base.Mod && bytes.Equal(kv.Value, tried.Value) && kv.Lease == tried.Lease:
			return kv, nil
		// The key is unchanged, so one of the caller's conditions failed.
		case errors.Is(failed, coord.ErrConflict) && len(conditions) > 0 && kv.Mod == base.Mod && bytes.Equal(kv.Value, base.Value):
			return kv, ErrOwnership
		}
		op, err := decide(kv, failed)
		if known && (err != nil || op == nil) {
			known, read = false, true
			continue // another process may have changed the key since
		}
		if err != nil || op == nil {
			return kv, err
		}
		rev, err := store.Commit(ctx, append([]coord.Condition{condition}, conditions...),
			[]coord.Op{{Key: key, Value: op.Value, Lease: op.Lease}})
		now := coord.KV{Key: key, Value: op.Value, Create: kv.Create, Mod: rev, Lease: op.Lease}
		if kv.Mod == 0 {
			now.Create = rev
		}
		if err == nil {
			k.set(now)
			return now, nil
		}
		k.forget(key)
		if !again(err) {
			return kv, err
		}
		failed, base, tried = err, kv, now
		outdated := known && errors.Is(err, coord.ErrConflict)
		known, read = false, true
		var conflict *coord.ConflictError
		if errors.As(err, &conflict) {
			kv, read = conflict.First, len(conflict.First.Value) > k.maxBytes
		}
		if outdated {
			continue // no reason to wait
		}
		if err := pause(ctx, wait); err != nil {
			return kv, fmt.Errorf("%w: %w", failed, err)
		}
	}
}

// unresolved returns err as coord.ErrUnknown if the outcome of the failed commit is unknown. The caller
// must not take err for a failure of that commit.
func unresolved(failed, err error) error {
	if errors.Is(failed, coord.ErrUnknown) {
		return fmt.Errorf("%w: %w", coord.ErrUnknown, err)
	}
	return err
}
