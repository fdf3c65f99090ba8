package overetcd_test

import (
	"context"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// suite is a Store with what coordtest needs beyond coord.Store.
type suite struct {
	*etcdcoord.Store
	endpoints []string

	mu     sync.Mutex
	leases map[coord.LeaseID]coord.Lease
}

func newSuite(t *testing.T, cfg etcdcoord.Config) *suite {
	t.Helper()
	return &suite{Store: open(t, cfg), endpoints: cfg.Endpoints, leases: map[coord.LeaseID]coord.Lease{}}
}

func (s *suite) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	l, err := s.Store.Grant(ctx, ttl)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leases[l.ID()] = l
	}
	return l, err
}

func (s *suite) Abandon(id coord.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[id].(interface{ Abandon() }).Abandon()
}

func (s *suite) Compact(ctx context.Context, revision int64) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: s.endpoints})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it is done with
	_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return err
}
