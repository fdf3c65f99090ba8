package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/coord"
)

// view is what is below a prefix, as of a revision.
type view struct {
	keys map[string]coord.KV
	rev  int64 // 0: nothing is known yet
}

// follow keeps a view up to date until ctx ends: a list, then a watch from there, and
// again from the list whenever the watch cannot go on.
func follow(ctx context.Context, store coord.Store, prefix string, log *zap.Logger, update func(view)) {
	retry := newBackOff()
	for ctx.Err() == nil {
		err := followOnce(ctx, store, prefix, func(v view) {
			retry.Reset()
			update(v)
		})
		if ctx.Err() != nil || errors.Is(err, coord.ErrCompacted) {
			continue
		}
		log.Info("watch of shards is interrupted", zap.String("prefix", prefix), zap.Error(err))
		if pause(ctx, retry) != nil {
			return
		}
	}
}

func followOnce(ctx context.Context, store coord.Store, prefix string, update func(view)) error {
	kvs, rev, err := store.List(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	keys := make(map[string]coord.KV, len(kvs))
	for _, kv := range kvs {
		keys[kv.Key] = kv
	}
	update(view{keys: maps.Clone(keys), rev: rev})
	w, err := store.Watch(ctx, prefix, rev)
	if err != nil {
		return fmt.Errorf("watch %s: %w", prefix, err)
	}
	defer w.Close()
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Deleted {
				delete(keys, e.KV.Key)
			} else {
				keys[e.KV.Key] = e.KV
			}
			rev = e.KV.Mod
		}
		update(view{keys: maps.Clone(keys), rev: rev})
	}
}

func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
}

// pause waits for the next attempt.
func pause(ctx context.Context, retry backoff.BackOff) error {
	select {
	case <-time.After(retry.NextBackOff()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
