package deployment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// relist is how long a watch may be silent before the keys are listed again. A watch that died
// unnoticed then only causes a delay.
const relist = 15 * time.Second

// Watch delivers the current record, and the newest one after each change. It may skip records in
// between. It resumes after any error of the store. An unreadable record (a newer format) is logged
// and not delivered. The channel is closed when ctx ends.
func (s *Store) Watch(ctx context.Context) <-chan upgradestate.Deployment {
	return conflate(ctx, func(emit func(upgradestate.Deployment)) {
		var last int64
		deliver := func(kv coord.KV) {
			// A relist delivers the same record again, and an old node may deliver an older one.
			if kv.Mod <= last {
				return
			}
			last = kv.Mod
			d, err := s.learn(kv)
			if err != nil {
				s.log.Error("cannot read the deployment", zap.Int64("revision", kv.Mod), zap.Error(err))
				return
			}
			emit(d)
		}
		f, running := s.joinRecord()
		defer s.watched.leave(f)
		// The shared watch may be behind the store. If the store does not answer, what the watch knows
		// is the best there is.
		if running {
			short, cancel := context.WithTimeout(ctx, relist)
			kv, err := s.coord.Get(short, s.recordKey())
			cancel()
			if err == nil {
				deliver(kv)
			}
		}
		for {
			kv, _, changed := f.newest()
			deliver(kv)
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
}

// joinRecord returns the watch of the record that all callers of Watch in this process share, and whether
// it was running. A controller has more than ten of them, and a switch changes the record ten times while
// writes are held. Each user calls s.watched.leave.
func (s *Store) joinRecord() (f *following[coord.KV], running bool) {
	return s.watched.join(func(ctx context.Context, f *following[coord.KV]) {
		s.follow(ctx, s.recordKey(), func(kvs map[string]coord.KV) {
			if kv, ok := kvs[s.recordKey()]; ok {
				f.set(kv)
			} else {
				f.lost() // whoever asks must learn from the store that there is no record
			}
		}, f.lost)
	})
}

// conflate runs produce until ctx ends, and delivers the newest value that it emits.
func conflate[T any](ctx context.Context, produce func(emit func(T))) <-chan T {
	ch := make(chan T, 1)
	go func() {
		defer close(ch)
		produce(func(v T) {
			select {
			case <-ch: // drop the previous value, which is outdated
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

// follow calls changed with all keys below a prefix, now and after each change, until ctx ends.
// changed must not keep the map. Unless lost is nil, follow calls it whenever the watch has ended:
// until the next call of changed, changes may be missing.
func (s *Store) follow(ctx context.Context, prefix string, changed func(map[string]coord.KV), lost func()) {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	kvs := map[string]coord.KV{}
	for ctx.Err() == nil {
		err := s.followOnce(ctx, prefix, kvs, func() {
			wait.Reset()
			// A relist can deliver the same state again; changed must tolerate that.
			changed(kvs)
		})
		if lost != nil {
			lost()
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("restarting the watch", zap.String("prefix", prefix), zap.Error(err))
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// followOnce lists the keys and watches them. It returns nil when the watch was silent for relist,
// and an error when it failed.
func (s *Store) followOnce(ctx context.Context, prefix string, kvs map[string]coord.KV, changed func()) error {
	// Bound the list, or a hanging store would stop the watch without an error.
	short, cancel := context.WithTimeout(ctx, relist)
	listed, _, w, err := s.coord.Follow(short, prefix)
	cancel()
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	defer w.Close()
	clear(kvs)
	for _, kv := range listed {
		kvs[kv.Key] = kv
	}
	// Report the list itself, because changes before it may have been missed.
	changed()
	for {
		short, cancel := context.WithTimeout(ctx, relist)
		events, err := w.Next(short)
		cancel()
		if err != nil {
			// Silence, not an error: list again in case the watch died.
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

// clone copies a map of follow, for callers that keep it.
func clone(kvs map[string]coord.KV) map[string]coord.KV { return maps.Clone(kvs) }
