package etcdcoord_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"dbcontroller.dev/internal/coord"
)

const perStream = 32

// crowded is an etcd that counts what each of its streams has to do.
type crowded struct {
	answering
	pb.UnimplementedLeaseServer
	pb.UnimplementedWatchServer

	mu      sync.Mutex
	next    int64
	leases  map[pb.Lease_LeaseKeepAliveServer]map[int64]bool
	watches map[pb.Watch_WatchServer]int
	renewed map[int64]bool
	all     chan struct{} // closed once want leases are renewed
	want    int
}

func (c *crowded) LeaseGrant(_ context.Context, req *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: c.next, TTL: req.TTL}, nil
}

func (c *crowded) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (c *crowded) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client is gone
		}
		c.mu.Lock()
		if c.leases[stream] == nil {
			c.leases[stream] = map[int64]bool{}
		}
		c.leases[stream][req.ID] = true
		c.renewed[req.ID] = true
		if len(c.renewed) == c.want {
			close(c.all)
			c.want = 0
		}
		c.mu.Unlock()
		_ = stream.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: req.ID, TTL: 60}) // if it fails, Recv fails too
	}
}

func (c *crowded) Watch(stream pb.Watch_WatchServer) error {
	for id := int64(1); ; id++ {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client is gone
		}
		if req.GetCreateRequest() == nil {
			continue
		}
		c.mu.Lock()
		c.watches[stream]++
		c.mu.Unlock()
		_ = stream.Send(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 5}, WatchId: id, Created: true})
	}
}

// TestManyLeasesAndWatches: many leases and watches are spread over several streams, because etcd and
// the client library work through each stream one request after another. A few share one.
func TestManyLeasesAndWatches(t *testing.T) {
	for _, n := range []int{perStream, 3*perStream + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			etcd := &crowded{
				leases: map[pb.Lease_LeaseKeepAliveServer]map[int64]bool{}, watches: map[pb.Watch_WatchServer]int{},
			}
			s := open(t, func(server *grpc.Server) {
				pb.RegisterKVServer(server, etcd)
				pb.RegisterLeaseServer(server, etcd)
				pb.RegisterWatchServer(server, etcd)
			})
			leases := etcd.grant(t, s, n)
			for range n {
				_, _, w, err := s.Follow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
			}
			etcd.check(t, n)
			// Whoever ends makes room for others.
			for _, lease := range leases {
				if err := lease.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			etcd.grant(t, s, n)
			etcd.check(t, n)
		})
	}
}

// grant grants leases and waits until all are renewed.
func (c *crowded) grant(t *testing.T, s coord.Store, n int) (leases []coord.Lease) {
	t.Helper()
	c.mu.Lock()
	clear(c.leases)
	c.renewed, c.all, c.want = map[int64]bool{}, make(chan struct{}), n
	all := c.all
	c.mu.Unlock()
	for range n {
		lease, err := s.Grant(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatal("not all leases are renewed")
	}
	return leases
}

// check holds the streams against the number of leases and watches.
func (c *crowded) check(t *testing.T, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	crowds := map[string][]int{"watches": slices.Collect(maps.Values(c.watches))}
	for ids := range maps.Values(c.leases) {
		crowds["leases"] = append(crowds["leases"], len(ids))
	}
	for what, crowd := range crowds {
		if want := (n + perStream - 1) / perStream; slices.Max(crowd) > perStream || len(crowd) != want {
			t.Errorf("%s by stream: %v, want %d streams with at most %d", what, crowd, want, perStream)
		}
	}
}
