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
	t     *testing.T
	cfg   etcdcoord.Config // of a connection without the proxy
	proxy *proxy

	mu     sync.Mutex
	leases map[coord.LeaseID]coord.Lease
}

func newSuite(t *testing.T, cfg etcdcoord.Config) *suite {
	t.Helper()
	s := &suite{t: t, cfg: cfg, proxy: startProxy(t, cfg.Endpoints[0]), leases: map[coord.LeaseID]coord.Lease{}}
	cfg.Endpoints = []string{"http://" + s.proxy.listener.Addr().String()}
	s.Store = open(t, cfg)
	return s
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
	client, err := clientv3.New(clientv3.Config{Endpoints: s.cfg.Endpoints})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it is done with
	_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return err
}

func (s *suite) Peer() coord.Store { return open(s.t, s.cfg) }

func (s *suite) Cut() (heal func()) { return s.proxy.hold() }
