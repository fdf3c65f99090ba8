package deployment

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
)

// Watch delivers all rollouts, and all of them again after each change. It may skip changes. It logs
// unreadable ones and leaves them out. The channel is closed when ctx ends. All callers share one
// watch of the store.
func (r *Rollouts) Watch(ctx context.Context) <-chan []rollout.Rollout {
	return conflate(ctx, func(emit func([]rollout.Rollout)) {
		f, _ := r.watched.join(r.follow)
		defer r.watched.leave(f)
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
func (r *Rollouts) Newest() (all []rollout.Rollout, known bool) { return r.watched.newest() }

// follow delivers all rollouts until ctx ends.
func (r *Rollouts) follow(ctx context.Context, f *following[[]rollout.Rollout]) {
	r.store.follow(ctx, r.prefix(), func(kvs map[string]coord.KV) {
		var list []coord.KV
		for _, key := range slices.Sorted(maps.Keys(kvs)) {
			list = append(list, kvs[key])
		}
		all, unreadable := decodeRollouts(list)
		for _, err := range unreadable {
			r.store.cfg.Log.Error("cannot read a rollout", zap.Error(err))
		}
		// The watch lists again when it was silent for long. That is no change.
		was, known, _ := f.newest()
		if known && slices.EqualFunc(was, all, func(a, b rollout.Rollout) bool { return a.Name == b.Name && a.Revision == b.Revision }) {
			return
		}
		f.set(all)
	}, nil) // what was seen stays known while the store is away
}
