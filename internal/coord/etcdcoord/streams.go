package etcdcoord

import (
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// perStream is the number of leases or watches that share one stream to etcd.
//
// A stream works through its requests one after another: etcd renews one lease at a time, and the
// client library waits for etcd's answer about one watch before it asks for the next. The library
// also repeats a renewal after half a second without an answer. So a stream with too many leases
// falls behind on a busy machine, and never recovers: all of its leases run out, and their holders
// begin again. With 200 deployments there are 400 leases and 800 watches. On two busy cores a
// renewal took 3 ms and a watch 40 ms.
const perStream = 32

// streams assigns users to streams, so that each stream has perStream users at most. The zero value
// has no users. It is safe for concurrent use.
type streams struct {
	mu    sync.Mutex
	users []int // of each stream
}

// join returns the first stream with room.
func (s *streams) join() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range s.users {
		if n < perStream {
			s.users[i]++
			return i
		}
	}
	s.users = append(s.users, 1)
	return len(s.users) - 1
}

// leave gives up the room of one user.
func (s *streams) leave(stream int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[stream]--
}

// renewals renew leases over several streams.
type renewals struct {
	streams

	mu     sync.Mutex
	by     []clientv3.Lease // one for each stream
	closed bool
}

// on returns what renews the leases of a stream, or nil after close.
func (r *renewals) on(client *clientv3.Client, stream int) clientv3.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	for len(r.by) <= stream {
		r.by = append(r.by, clientv3.NewLease(client))
	}
	return r.by[stream]
}

func (r *renewals) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, l := range r.by {
		_ = l.Close() // its error is only that it is closed
	}
}
