package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
)

// view is the contents of the store below a prefix at a revision.
type view struct {
	keys map[string]coord.KV
	rev  int64 // 0: unknown
}

// follow keeps a view up to date until ctx ends. It lists the prefix and watches from that revision
// on. When the watch breaks, it starts again with the list.
func follow(ctx context.Context, store coord.Store, prefix string, log *zap.Logger, update func(view)) {
	retry := newBackOff()
	for ctx.Err() == nil {
		err := followOnce(ctx, store, prefix, func(v view) {
			// The store has answered, so the next failure is a new one.
			retry.Reset()
			update(v)
		})
		// The watch has fallen behind the store's history. A new list works at once.
		if ctx.Err() != nil || errors.Is(err, coord.ErrCompacted) {
			continue
		}
		log.Info("watch of shards is interrupted", zap.String("prefix", prefix), zap.Error(err))
		if pause(ctx, retry) != nil {
			return
		}
	}
}

// followOnce lists a prefix once and follows it until an error.
func followOnce(ctx context.Context, store coord.Store, prefix string, update func(view)) error {
	kvs, rev, w, err := store.Follow(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	defer w.Close()
	keys := make(map[string]coord.KV, len(kvs))
	for _, kv := range kvs {
		keys[kv.Key] = kv
	}
	// The receiver keeps the view, so it gets a copy.
	update(view{keys: maps.Clone(keys), rev: rev})
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

// newBackOff returns a backoff without an end: an outage may last for hours.
func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
}

// pause waits for the next attempt or for the end of ctx.
func pause(ctx context.Context, retry backoff.BackOff) error {
	select {
	case <-time.After(retry.NextBackOff()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
