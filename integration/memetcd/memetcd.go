// Package memetcd is an etcd in memory, as far as the record store on etcd can tell: keys with
// all their revisions, transactions, watches, compaction, and the bounds of requests. What runs
// over it can be simulated, with time that is not real and histories that end at any moment.
//
// A test compares its answers with those of a real etcd, request by request.
//
// It has no leases, users or members, and watches deliver what they have without delay. It is
// the client's interfaces that it serves, and no protocol: what clientv3 itself does, retries
// and streams that reconnect, is seen over a real one.
//
// It is not for users and may change with any version.
package memetcd

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Options are etcd's own.
type Options struct {
	Operations int // --max-txn-ops; 0: 128
	Bytes      int // --max-request-bytes; 0: 1.5 MiB
}

// Server is the cluster. Its methods may be called concurrently.
type Server struct {
	opts Options
	id   uint64

	mu        sync.Mutex
	revision  int64
	compacted int64
	keys      []string // of all that has a history, sorted
	history   map[string][]*mvccpb.KeyValue
	events    []*clientv3.Event // from compacted on
	restores  int               // of backups
	changed   chan struct{}     // closed and replaced by each commit
	streams   map[string]*stream
	silent    bool // no answers to requests for progress
	cut       bool // no connection of watches
}

// New makes an empty cluster, as of the revision at which etcd begins.
func New(o Options) *Server {
	if o.Operations == 0 {
		o.Operations = 128
	}
	if o.Bytes == 0 {
		o.Bytes = 1536 << 10
	}
	return &Server{
		opts: o, id: rand.Uint64(), revision: 1, history: map[string][]*mvccpb.KeyValue{},
		changed: make(chan struct{}), streams: map[string]*stream{},
	}
}

// Client is a connection. It ends with ctx, or when it is closed.
func (s *Server) Client(ctx context.Context) *clientv3.Client {
	c := clientv3.NewCtxClient(ctx)
	c.KV = clientv3.NewKVFromKVClient(kv{s}, c)
	c.Watcher = &watcher{s: s}
	return c
}

// Compact forgets all that was before the newest revision. Watches that have not been told of it
// yet have lost their history.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact(s.revision)
}

func (s *Server) compact(revision int64) {
	s.compacted = revision
	for key, versions := range s.history {
		keep := 0
		for keep < len(versions)-1 && versions[keep+1].ModRevision <= revision {
			keep++
		}
		versions = versions[keep:]
		if len(versions) == 1 && versions[0].Version == 0 && versions[0].ModRevision <= revision {
			delete(s.history, key)
			i, _ := slices.BinarySearch(s.keys, key)
			s.keys = slices.Delete(s.keys, i, i+1)
			continue
		}
		s.history[key] = versions
	}
	s.events = slices.DeleteFunc(s.events, func(e *clientv3.Event) bool { return e.Kv.ModRevision < revision })
	s.wake()
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: s.id, MemberId: 1, Revision: s.revision, RaftTerm: 2}
}

// at is a key as of a revision; nil: it was not there.
func (s *Server) at(key string, revision int64) *mvccpb.KeyValue {
	for _, kv := range slices.Backward(s.history[key]) {
		if kv.ModRevision <= revision {
			if kv.Version == 0 {
				return nil
			}
			return kv
		}
	}
	return nil
}

// within returns the keys of a range that have a history.
func (s *Server) within(key, end []byte) []string {
	from, found := slices.BinarySearch(s.keys, string(key))
	switch {
	case len(end) == 0 && !found:
		return nil
	case len(end) == 0:
		return s.keys[from : from+1]
	case string(end) == "\x00":
		return s.keys[from:]
	}
	to, _ := slices.BinarySearch(s.keys, string(end))
	return s.keys[from:max(from, to)]
}

func covers(key, end []byte, k string) bool {
	if len(end) == 0 {
		return k == string(key)
	}
	return k >= string(key) && (string(end) == "\x00" || k < string(end))
}

// kv answers requests.
type kv struct{ s *Server }

func (k kv) Range(ctx context.Context, req *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	if err := k.s.enter(ctx, req); err != nil {
		return nil, err
	}
	defer k.s.mu.Unlock()
	return k.s.read(req, k.s.revision)
}

func (k kv) Put(ctx context.Context, req *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	resp, err := k.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: req}}}})
	if err != nil {
		return nil, err
	}
	return &pb.PutResponse{Header: resp.Header}, nil
}

func (k kv) DeleteRange(ctx context.Context, req *pb.DeleteRangeRequest, _ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	resp, err := k.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: req}}}})
	if err != nil {
		return nil, err
	}
	return &pb.DeleteRangeResponse{Header: resp.Header, Deleted: resp.Responses[0].GetResponseDeleteRange().Deleted}, nil
}

func (k kv) Compact(ctx context.Context, req *pb.CompactionRequest, _ ...grpc.CallOption) (*pb.CompactionResponse, error) {
	if err := k.s.enter(ctx, req); err != nil {
		return nil, err
	}
	defer k.s.mu.Unlock()
	switch {
	case req.Revision <= k.s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case req.Revision > k.s.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	}
	k.s.compact(req.Revision)
	return &pb.CompactionResponse{Header: k.s.header()}, nil
}

func (k kv) RangeStream(context.Context, *pb.RangeRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pb.RangeStreamResponse], error) {
	return nil, rpctypes.ErrGRPCNotCapable
}

// enter begins a request. The caller unlocks.
func (s *Server) enter(ctx context.Context, req proto.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if proto.Size(req) > s.opts.Bytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	s.mu.Lock()
	return nil
}

// read answers a range request. newest is the revision of reads that name none.
func (s *Server) read(req *pb.RangeRequest, newest int64) (*pb.RangeResponse, error) {
	revision := req.Revision
	switch {
	case revision > s.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	case revision <= 0:
		revision = newest
	case revision < s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	}
	resp := &pb.RangeResponse{Header: s.header()}
	for _, key := range s.within(req.Key, req.RangeEnd) {
		kv := s.at(key, revision)
		if kv == nil {
			continue
		}
		resp.Count++
		switch {
		case req.CountOnly:
		case req.Limit > 0 && resp.Count > req.Limit:
			resp.More = true
		default:
			kv = proto.Clone(kv).(*mvccpb.KeyValue)
			if req.KeysOnly {
				kv.Value = nil
			}
			resp.Kvs = append(resp.Kvs, kv)
		}
	}
	return resp, nil
}

// Keys lists all that is there below a prefix, for tests that look for leftovers.
func (s *Server) Keys(prefix string) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.keys {
		if strings.HasPrefix(key, prefix) && s.at(key, s.revision) != nil {
			keys = append(keys, key)
		}
	}
	return keys
}
