package etcdcoord_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdconn"
)

// ending is an etcd that ends its watches. The client library may ask twice for a watch, so an answer
// depends only on the revision that the watch begins with.
type ending struct {
	answering
	pb.UnimplementedWatchServer
	answers map[int64]answer
	denies  atomic.Bool // refuses all watches

	mu     sync.Mutex
	starts []int64 // revisions that watches began with
}

// answer is what a watch gets.
type answer struct {
	revisions []int64         // of the events that it delivers
	end       <-chan struct{} // it ends then: the library drops events that nobody took before
	compacted bool            // reason for the end; otherwise a lost leader
}

func (e *ending) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 5}}, nil
}

func (e *ending) Watch(stream pb.Watch_WatchServer) error {
	for id := int64(1); ; id++ {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client is gone
		}
		create := req.GetCreateRequest()
		if create == nil {
			continue
		}
		e.mu.Lock()
		e.starts = append(e.starts, create.StartRevision)
		e.mu.Unlock()
		send := func(resp *pb.WatchResponse) {
			resp.Header, resp.WatchId = &pb.ResponseHeader{Revision: 5}, id
			_ = stream.Send(resp) // if it fails, Recv fails too
		}
		if e.denies.Load() {
			send(&pb.WatchResponse{Created: true, Canceled: true, CancelReason: "etcdserver: permission denied"})
			continue
		}
		send(&pb.WatchResponse{Created: true})
		a := e.answers[create.StartRevision]
		for _, rev := range a.revisions {
			send(&pb.WatchResponse{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: rev}}}})
		}
		select {
		case <-a.end:
		case <-stream.Context().Done():
			return nil
		}
		if a.compacted {
			send(&pb.WatchResponse{Canceled: true, CompactRevision: 30})
		} else {
			send(&pb.WatchResponse{Canceled: true, CancelReason: "etcdserver: no leader"})
		}
	}
}

// TestWatchOpensAgain: a watch that etcd ends opens again after the last revision that it knows, and
// delivers no change twice, also from a member that is behind.
func TestWatchOpensAgain(t *testing.T) {
	first, second, third := make(chan struct{}), make(chan struct{}), make(chan struct{})
	etcd := &ending{answers: map[int64]answer{
		0:  {revisions: []int64{4, 5, 6, 7}, end: first}, // the list has the first two
		8:  {revisions: []int64{7, 9}, end: second},
		10: {end: third, compacted: true},
	}}
	s := open(t, func(server *grpc.Server) {
		pb.RegisterKVServer(server, etcd)
		pb.RegisterWatchServer(server, etcd)
	})
	_, _, w, err := s.Follow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next := func(want int64) {
		t.Helper()
		if got, err := w.Next(t.Context()); err != nil || len(got) != 1 || got[0].KV.Mod != want {
			t.Fatalf("Next = %+v, %v, want revision %d", got, err, want)
		}
	}
	fails := func(want error) {
		t.Helper()
		if got, err := w.Next(t.Context()); !errors.Is(err, want) {
			t.Fatalf("Next = %+v, %v, want %v", got, err, want)
		}
	}
	next(6)
	next(7)
	close(first)
	next(9)
	close(second)
	close(third)
	fails(coord.ErrCompacted)
	etcd.denies.Store(true)
	fails(etcdconn.ErrDenied)
	etcd.mu.Lock()
	defer etcd.mu.Unlock()
	if got := slices.Compact(etcd.starts); !slices.Equal(got, []int64{0, 8, 10}) {
		t.Errorf("watches begin with the revisions %v, want 0, 8 and 10", got)
	}
}
