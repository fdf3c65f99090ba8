package controller

import (
	"context"
	"sync"

	"dbcontroller.dev/shards"
	"dbcontroller.dev/syncer"
)

// ownership passes the pool's signals on to every engine that runs: the pool has one
// receiver, and around a flip there are two.
type ownership struct {
	pool *shards.Pool

	mu   sync.Mutex
	subs map[*subscription]bool
}

// subscription is the pool as one engine sees it.
type subscription struct {
	*shards.Pool
	changes chan struct{}
}

var _ syncer.Ownership = (*subscription)(nil)

// Changes is signalled (conflated) whenever Owned or Leaving may have changed.
func (s *subscription) Changes() <-chan struct{} { return s.changes }

func newOwnership(pool *shards.Pool) *ownership {
	return &ownership{pool: pool, subs: map[*subscription]bool{}}
}

func (o *ownership) subscribe() *subscription {
	s := &subscription{Pool: o.pool, changes: make(chan struct{}, 1)}
	s.changes <- struct{}{} // what is owned already
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
			default:
			}
		}
		o.mu.Unlock()
	}
}
