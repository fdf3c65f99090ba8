package etcdcoord

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/coord"
)

// Suite is a Store with what coordtest needs beyond coord.Store.
type Suite struct {
	*Store
	mu     sync.Mutex
	leases map[coord.LeaseID]*lease
}

func NewSuite(s *Store) *Suite { return &Suite{Store: s, leases: map[coord.LeaseID]*lease{}} }

func (s *Suite) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	l, err := s.Store.Grant(ctx, ttl)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leases[l.ID()] = l.(*lease)
	}
	return l, err
}

func (s *Suite) Abandon(id coord.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[id].stop()
}

func (s *Suite) Compact(ctx context.Context, revision int64) error {
	_, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return err
}
