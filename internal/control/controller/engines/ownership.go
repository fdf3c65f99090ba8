package engines

import (
	"context"
	"sync"

	"dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
)

// ownership forwards the pool's signals to every running engine. The pool supports one receiver,
// but around a flip two engines run.
type ownership struct {
	pool *shards.Pool

	mu   sync.Mutex
	subs map[*subscription]bool
}

// subscription is one engine's view of the pool.
type subscription struct {
	*shards.Pool
	changes chan struct{}
}

var _ syncer.Ownership = (*subscription)(nil)

// Changes receives a value whenever Owned or Leaving may have changed. Several changes may share
// one value.
func (s *subscription) Changes() <-chan struct{} { return s.changes }

func newOwnership(pool *shards.Pool) *ownership {
	return &ownership{pool: pool, subs: map[*subscription]bool{}}
}

func (o *ownership) subscribe() *subscription {
	s := &subscription{Pool: o.pool, changes: make(chan struct{}, 1)}
	s.changes <- struct{}{} // the first signal, for shards that are already owned
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subs[s] = true
	return s
}

func (o *ownership) unsubscribe(s *subscription) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.subs, s)
}

func (o *ownership) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.pool.Changes():
		}
		o.mu.Lock()
		for s := range o.subs {
			select {
			case s.changes <- struct{}{}:
			// The channel is full if the engine has not read the last signal. That signal covers
			// this one.
			default:
			}
		}
		o.mu.Unlock()
	}
}
