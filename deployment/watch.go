package deployment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/upgradestate"
)

// relist is how long a watch may be silent before the keys are listed again: the price
// of a watch that died unnoticed is then a delay.
const relist = 15 * time.Second

// Watch delivers the newest record whenever it changed, beginning with the present one;
// intermediate ones may be skipped. It goes on after any error of the store. A record
// that cannot be read (a newer format) is logged and not delivered. The channel is
// closed when ctx ends.
func (s *Store) Watch(ctx context.Context) <-chan upgradestate.Deployment {
	return conflate(ctx, func(emit func(upgradestate.Deployment)) {
		var last int64
		s.follow(ctx, s.recordKey(), func(kvs map[string]coord.KV) {
			kv, ok := kvs[s.recordKey()]
			if !ok || kv.Mod <= last {
				return
			}
			last = kv.Mod
			d, err := s.decode(kv)
			if err != nil {
				s.cfg.Log.Error("deployment cannot be read", zap.String("deployment", s.name), zap.Int64("revision", kv.Mod), zap.Error(err))
				return
			}
			emit(d)
		})
	})
}

// conflate runs produce until ctx ends, and hands on the newest of what it emits.
func conflate[T any](ctx context.Context, produce func(emit func(T))) <-chan T {
	ch := make(chan T, 1)
	go func() {
		defer close(ch)
		produce(func(v T) {
			select {
			case <-ch: // nobody took the one before, which is now outdated
			default:
			}
			select {
			case ch <- v:
			case <-ctx.Done():
			}
		})
	}()
	return ch
}

// follow calls changed with the keys below a prefix as they are, and again after each
// change, until ctx ends. changed must not keep the map.
func (s *Store) follow(ctx context.Context, prefix string, changed func(map[string]coord.KV)) {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	kvs := map[string]coord.KV{}
	for ctx.Err() == nil {
		err := s.followOnce(ctx, prefix, kvs, func() {
			wait.Reset()
			changed(kvs)
		})
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.cfg.Log.Warn("watch begins again", zap.String("prefix", prefix), zap.Error(err))
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// followOnce lists and watches until the watch is silent for long (nil) or fails.
func (s *Store) followOnce(ctx context.Context, prefix string, kvs map[string]coord.KV, changed func()) error {
	short, cancel := context.WithTimeout(ctx, relist)
	listed, rev, err := s.coord.List(short, prefix)
	cancel()
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	clear(kvs)
	for _, kv := range listed {
		kvs[kv.Key] = kv
	}
	changed()
	w, err := s.coord.Watch(ctx, prefix, rev)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Close()
	for {
		short, cancel := context.WithTimeout(ctx, relist)
		events, err := w.Next(short)
		cancel()
		if err != nil {
			if ctx.Err() == nil && errors.Is(short.Err(), context.DeadlineExceeded) {
				return nil
			}
			return fmt.Errorf("watch: %w", err)
		}
		for _, e := range events {
			if e.Deleted {
				delete(kvs, e.KV.Key)
			} else {
				kvs[e.KV.Key] = e.KV
			}
		}
		changed()
	}
}

// clone is for those who keep what follow shows them.
func clone(kvs map[string]coord.KV) map[string]coord.KV { return maps.Clone(kvs) }
