package deployment

import (
	"context"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
)

// Watch delivers all rollouts, and all of them again after each change. It may skip changes. It logs
// unreadable ones and leaves them out. The channel is closed when ctx ends. All callers share one
// watch of the store.
func (r *Rollouts) Watch(ctx context.Context) <-chan []rollout.Rollout {
	return conflate(ctx, func(emit func([]rollout.Rollout)) {
		f := r.join()
		defer r.leave(f)
		for {
			all, known, changed := f.newest()
			if known {
				emit(all)
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
}

// Newest returns the rollouts as a running Watch has seen them last, without a call of the store.
// known is false if nobody watches, or nothing was seen yet.
func (r *Rollouts) Newest() (all []rollout.Rollout, known bool) {
	r.mu.Lock()
	f := r.follower
	r.mu.Unlock()
	if f == nil {
		return nil, false
	}
	all, known, _ = f.newest()
	return all, known
}

// rolloutFollower is the watch of all rollouts that a process shares.
type rolloutFollower struct {
	users int // Rollouts.mu guards it
	stop  context.CancelFunc
	ended chan struct{}

	mu      sync.Mutex
	all     []rollout.Rollout
	known   bool
	changed chan struct{} // closed at the next change
}

func (r *Rollouts) join() *rolloutFollower {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.follower != nil {
		r.follower.users++
		return r.follower
	}
	ctx, stop := context.WithCancel(context.Background()) // until the last user leaves
	f := &rolloutFollower{users: 1, stop: stop, ended: make(chan struct{}), changed: make(chan struct{})}
	r.follower = f
	go func() {
		defer close(f.ended)
		r.store.follow(ctx, r.prefix(), func(kvs map[string]coord.KV) {
			var list []coord.KV
			for _, key := range slices.Sorted(maps.Keys(kvs)) {
				list = append(list, kvs[key])
			}
			all, unreadable := decodeRollouts(list)
			for _, err := range unreadable {
				r.store.cfg.Log.Error("cannot read a rollout", zap.Error(err))
			}
			f.set(all)
		}, nil)
	}()
	return f
}

func (r *Rollouts) leave(f *rolloutFollower) {
	r.mu.Lock()
	f.users--
	last := f.users == 0
	if last {
		r.follower = nil
	}
	r.mu.Unlock()
	if last {
		f.stop()
		<-f.ended
	}
}

func (f *rolloutFollower) set(all []rollout.Rollout) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The watch lists again when it was silent for long. That is no change.
	if f.known && slices.EqualFunc(f.all, all, func(a, b rollout.Rollout) bool { return a.Name == b.Name && a.Revision == b.Revision }) {
		return
	}
	f.all, f.known = all, true
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *rolloutFollower) newest() (all []rollout.Rollout, known bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all, f.known, f.changed
}
