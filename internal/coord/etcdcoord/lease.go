package etcdcoord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdconn"
)

type lease struct {
	store  *Store
	id     clientv3.LeaseID
	stream int // of Store.renewals
	done   chan struct{}
	stop   context.CancelFunc // ends the renewal
}

var _ coord.Lease = (*lease)(nil)

// Grant implements coord.Store. etcd counts in whole seconds. It may raise a short ttl to its
// minimum of one and a half election timeouts.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	seconds := max(int64((ttl+time.Second-1)/time.Second), 1)
	granted := time.Now() // our count must begin before the server's
	resp, err := s.client.Grant(ctx, seconds)
	// If etcd has granted the lease nevertheless, it expires, because nobody renews it.
	if etcdconn.NoSpace(err) {
		return nil, fmt.Errorf("grant lease: %w: %s", coord.ErrNoSpace, etcdconn.MakeRoom)
	}
	if err != nil {
		return nil, fmt.Errorf("grant lease: %w", s.client.Denied(err))
	}
	// The renewal outlives ctx, which belongs to this call only.
	keep, stop := context.WithCancel(s.client.Ctx())
	stream := s.renewals.join()
	renewals, err := s.renew(keep, resp.ID, stream)
	if err != nil {
		stop()
		s.renewals.leave(stream)
		return nil, fmt.Errorf("keep lease alive: %w", err)
	}
	l := &lease{store: s, id: resp.ID, stream: stream, done: make(chan struct{}), stop: stop}
	s.leases.Go(func() {
		l.follow(keep, renewals, granted, time.Duration(resp.TTL)*time.Second)
	})
	return l, nil
}

// renew renews a lease over a stream until ctx ends.
func (s *Store) renew(ctx context.Context, id clientv3.LeaseID, stream int) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	by := s.renewals.on(s.client.Client, stream)
	if by == nil {
		return nil, coord.ErrClosed
	}
	return by.KeepAlive(ctx, id)
}

// follow closes done when the lease has expired by our own clock, the server reports its end, or
// the renewal has stopped. It then stops the renewal, because a lease must not live on after its
// holder gave it up.
func (l *lease) follow(ctx context.Context, renewals <-chan *clientv3.LeaseKeepAliveResponse, from time.Time, ttl time.Duration) {
	defer close(l.done)
	defer l.store.renewals.leave(l.stream)
	defer l.stop()
	expiry := from.Add(ttl)
	timer := time.NewTimer(time.Until(expiry))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case _, ok := <-renewals:
			// This process may have been stopped while the renewal arrived. A renewal from before
			// the expiry then proves nothing.
			if !ok || !time.Now().Before(expiry) {
				return
			}
			expiry = time.Now().Add(ttl)
			timer.Reset(ttl)
		}
	}
}

func (l *lease) ID() coord.LeaseID     { return coord.LeaseID(l.id) }
func (l *lease) Done() <-chan struct{} { return l.done }

// Abandon stops only the renewal, like the death of the holder. The suite in coordtest uses it.
func (l *lease) Abandon() { l.stop() }

// Close implements coord.Lease. If the revocation fails, the lease expires by itself, because its
// renewal has stopped.
func (l *lease) Close(ctx context.Context) error {
	l.stop()
	<-l.done
	_, err := l.store.client.Revoke(ctx, l.id)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("revoke lease: %w", l.store.client.Denied(err))
	}
	return nil
}
