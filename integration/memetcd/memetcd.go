// Package memetcd is an in-memory etcd for simulations of the record store on etcd. It has keys
// with all their revisions, transactions, watches, compaction and the limits of requests. Code on
// top of it can run in simulated time, and a history can end at any moment.
//
// A test compares its responses with a real etcd's, request by request.
//
// It has no leases, users or members, and delivers to watches without delay. It implements the
// client's interfaces and no protocol. Tests with a real etcd cover clientv3's own retries and
// reconnects. Begin to read at Server.
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

// Options are options of etcd itself.
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
	keys      []string // with a history, sorted
	history   map[string][]*mvccpb.KeyValue
	events    []*clientv3.Event // from revision compacted on
	restores  int               // number of restored backups
	changed   chan struct{}     // closed and replaced by each commit
	streams   map[string]*stream
	silent    bool // gives no response to progress requests
	cut       bool // disconnects all watches
	full      bool // the next put crosses the quota
	alarm     bool // a put has crossed the quota
}

// New returns an empty cluster at etcd's first revision.
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

// Client returns a connection. It ends with ctx, or when it is closed.
func (s *Server) Client(ctx context.Context) *clientv3.Client {
	c := clientv3.NewCtxClient(ctx)
	c.KV = clientv3.NewKVFromKVClient(kv{s}, c)
	c.Watcher = &watcher{s: s}
	return c
}

// Compact discards the history before the newest revision. Watches that have not received it yet
// have lost their history.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact(s.revision)
}

func (s *Server) compact(revision int64) {
	s.compacted = revision
	for key, versions := range s.history {
		// The newest version at or before the revision stays: reads at the revision still need it.
		keep := 0
		for keep < len(versions)-1 && versions[keep+1].ModRevision <= revision {
			keep++
		}
		versions = slices.Clone(versions[keep:]) // the array would keep the values
		// A deleted key needs no history from its own deletion on.
		if len(versions) == 1 && versions[0].Version == 0 && versions[0].ModRevision <= revision {
			delete(s.history, key)
			i, _ := slices.BinarySearch(s.keys, key)
			s.keys = slices.Delete(s.keys, i, i+1)
			continue
		}
		s.history[key] = versions
	}
	// Events of the compacted revision itself stay, because a watch may begin there.
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

// at returns a key as of a revision, or nil if it did not exist then.
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

// within returns the keys of a range that have a history, deleted ones included.
func (s *Server) within(key, end []byte) []string {
	from, found := slices.BinarySearch(s.keys, string(key))
	switch {
	case len(end) == 0 && !found:
		return nil
	case len(end) == 0:
		return s.keys[from : from+1]
	// etcd's range end for "all keys from here on".
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

// kv handles requests.
type kv struct{ s *Server }

func (k kv) Range(ctx context.Context, req *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	if err := k.s.enter(ctx, req); err != nil {
		return nil, err
	}
	defer k.s.mu.Unlock()
	return k.s.read(req, k.s.revision)
}

func (k kv) Put(ctx context.Context, req *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	// As in etcd, a single put is a transaction of one operation.
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

// enter checks a request and takes the lock. If it succeeds, the caller must unlock.
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

// read handles a range request. A request without a revision reads at newest.
func (s *Server) read(req *pb.RangeRequest, newest int64) (*pb.RangeResponse, error) {
	revision := req.Revision
	switch {
	// etcd refuses a future revision instead of waiting for it.
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
		// etcd counts all matches, even those beyond the limit.
		resp.Count++
		switch {
		case req.CountOnly:
		case req.Limit > 0 && resp.Count > req.Limit:
			resp.More = true
		default:
			// The caller may change its response, but not the history.
			kv = proto.Clone(kv).(*mvccpb.KeyValue)
			if req.KeysOnly {
				kv.Value = nil
			}
			resp.Kvs = append(resp.Kvs, kv)
		}
	}
	return resp, nil
}

// Keys returns all existing keys with a prefix, for tests that look for leftovers.
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
