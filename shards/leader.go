package shards

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/internal/coord"
)

// Campaign waits until a key is free and creates it under a lease, with id as its value. It watches
// the holder's key and does not poll. Leadership is for liveness only: commits that two processes
// must not both make need Lock.Condition. If the lease ends meanwhile, Campaign returns
// coord.ErrLeaseLost.
func Campaign(ctx context.Context, store coord.Store, key, id string, lease coord.Lease) (Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-lease.Done():
			cancel(coord.ErrLeaseLost)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-ended }()

	retry := newBackOff()
	for {
		// The commit succeeds only if the key is absent, so at most one campaigner wins.
		rev, err := store.Commit(ctx, []coord.Condition{{Key: key}}, []coord.Op{{Key: key, Value: []byte(id), Lease: lease.ID()}})
		switch {
		case err == nil:
			return Lock{Shard: -1, Key: key, Create: rev}, nil
		// Either another process holds the key, or our own earlier commit got through.
		case errors.Is(err, coord.ErrConflict):
			var held Lock
			if held, err = awaitFree(ctx, store, key, lease.ID()); err == nil && held.Create != 0 {
				return held, nil
			}
		}
		switch {
		// The key is free, or the watch cannot show it: try at once.
		case err == nil, errors.Is(err, coord.ErrCompacted):
		case ctx.Err() != nil:
			return Lock{}, fmt.Errorf("campaign for %s: %w", key, context.Cause(ctx))
		// The commit may have succeeded. The next attempt finds out.
		case errors.Is(err, coord.ErrUnknown):
			if pause(ctx, retry) != nil {
				return Lock{}, fmt.Errorf("campaign for %s: %w", key, context.Cause(ctx))
			}
		default:
			return Lock{}, fmt.Errorf("campaign for %s: %w", key, err)
		}
	}
}

// awaitFree returns when the key is absent. If the key is held under our own lease, it returns that
// lock: an earlier commit with an unknown outcome got through.
func awaitFree(ctx context.Context, store coord.Store, key string, ours coord.LeaseID) (Lock, error) {
	kvs, _, w, err := store.Follow(ctx, key) // no delete after the list is missed
	if err != nil {
		return Lock{}, err
	}
	defer w.Close()
	if len(kvs) == 0 || kvs[0].Key != key { // the list is ordered, so the key itself comes first
		return Lock{}, nil
	}
	if kvs[0].Lease == ours {
		return Lock{Shard: -1, Key: key, Create: kvs[0].Create}, nil
	}
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return Lock{}, err
		}
		for _, e := range events {
			if e.Deleted && e.KV.Key == key {
				return Lock{}, nil
			}
		}
	}
}

// Lead runs work whenever this process is the leader, under a lease of DefaultTTL. The context of
// work ends when leadership is lost. After the next election Lead calls work again. If work returns
// while the process leads, Lead returns the result of work, including nil. Lead returns nil when
// ctx ends.
func Lead(ctx context.Context, store coord.Store, key, id string, log *zap.Logger, work func(context.Context) error) error {
	retry := newBackOff()
	for ctx.Err() == nil {
		over, err := leadOnce(ctx, store, key, id, log, work)
		if ctx.Err() != nil {
			return nil
		}
		if over {
			return err
		}
		if errors.Is(err, coord.ErrLeaseLost) {
			retry.Reset() // it was the leader, so this is a new failure
		}
		log.Info("campaigns again", zap.String("key", key), zap.Error(err))
		if pause(ctx, retry) != nil {
			return nil
		}
	}
	return nil
}

// leadOnce campaigns and leads for one lease. over reports that work ended by itself.
func leadOnce(ctx context.Context, store coord.Store, key, id string, log *zap.Logger, work func(context.Context) error) (over bool, err error) {
	lease, err := store.Grant(ctx, DefaultTTL)
	if err != nil {
		return false, fmt.Errorf("grant lease: %w", err)
	}
	defer func() {
		// Without a close the successor waits for the lease to run out.
		if err := closing.Bounded(ctx, lease.Close); err != nil {
			log.Info("lease is left to run out", zap.Error(err))
		}
	}()
	if _, err := Campaign(ctx, store, key, id, lease); err != nil {
		return false, err
	}
	log.Info("leads", zap.String("key", key), zap.String("id", id))
	// work must stop with the lease: another leader may start at once.
	working, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-lease.Done():
			cancel()
		case <-working.Done():
		}
	}()
	err = work(working)
	over = working.Err() == nil
	cancel()
	// The goroutine uses cancel, so leadOnce waits for it.
	<-ended
	// The result of work is a consequence of the lost lease.
	if !over && ctx.Err() == nil {
		return false, coord.ErrLeaseLost
	}
	return over, err
}

// Lock is one period of ownership of a shard, or of leadership.
type Lock struct {
	Shard  int    // -1 for leadership
	Key    string // in the coordination store
	Create int64  // revision at which this owner created the key
}

// Condition returns a condition that holds as long as the lock. A commit with it fails with
// coord.ErrConflict after the lock was released or lost, even if the same process has taken it
// again since.
func (l Lock) Condition() coord.Condition {
	return coord.Condition{Key: l.Key, Create: true, Revision: l.Create}
}

// shardKey pads the number, so that lists are in the order of the ring.
func shardKey(prefix string, shard int) string { return fmt.Sprintf("%s%05d", prefix, shard) }
