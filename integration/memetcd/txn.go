package memetcd

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Txn executes one of the two lists of operations atomically.
func (k kv) Txn(ctx context.Context, req *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	s := k.s
	if max(len(req.Compare), len(req.Success), len(req.Failure)) > s.opts.Operations {
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	for _, ops := range [][]*pb.RequestOp{req.Success, req.Failure} {
		if err := disjoint(ops); err != nil {
			return nil, err
		}
	}
	if err := s.enter(ctx, req); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	puts := slices.ContainsFunc(slices.Concat(req.Success, req.Failure), func(op *pb.RequestOp) bool { return op.GetRequestPut() != nil })
	if puts && s.alarm {
		return nil, rpctypes.ErrGRPCNoSpace
	}
	resp := &pb.TxnResponse{Succeeded: true}
	for _, c := range req.Compare {
		resp.Succeeded = resp.Succeeded && s.holds(c)
	}
	ops := req.Success
	if !resp.Succeeded {
		ops = req.Failure
	}
	// A read that fails refuses the whole transaction, so all reads run before any write.
	for _, op := range ops {
		if r := op.GetRequestRange(); r != nil {
			if _, err := s.read(r, s.revision); err != nil {
				return nil, err
			}
		}
	}
	// All operations of a transaction share one revision.
	w := &writing{s: s, at: s.revision + 1}
	for _, op := range ops {
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			got, err := s.read(r.RequestRange, w.at)
			if err != nil {
				return nil, err
			}
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: got}})
		case *pb.RequestOp_RequestPut:
			w.put(r.RequestPut)
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}})
		case *pb.RequestOp_RequestDeleteRange:
			n := w.remove(r.RequestDeleteRange)
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: n}}})
		}
	}
	// A transaction that only reads, or deletes nothing, takes no revision.
	if len(w.events) > 0 {
		s.revision = w.at
		s.events = append(s.events, w.events...)
		s.wake()
	}
	// As in etcd, the transaction that crosses the quota takes effect before the alarm.
	if puts && s.full {
		s.alarm = true
		return nil, rpctypes.ErrGRPCNoSpace
	}
	resp.Header = s.header()
	return resp, nil
}

// disjoint refuses operations that change the same key twice.
func disjoint(ops []*pb.RequestOp) error {
	seen := map[string]bool{}
	for _, op := range ops {
		p := op.GetRequestPut()
		if p == nil {
			continue
		}
		if seen[string(p.Key)] {
			return rpctypes.ErrGRPCDuplicateKey
		}
		seen[string(p.Key)] = true
	}
	for _, op := range ops {
		d := op.GetRequestDeleteRange()
		if d == nil {
			continue
		}
		// A delete may overlap other deletes, but no put.
		for key := range seen {
			if covers(d.Key, d.RangeEnd, key) {
				return rpctypes.ErrGRPCDuplicateKey
			}
		}
	}
	return nil
}

// holds reports whether a comparison is true now. A missing key compares as if all its numbers were
// zero. By value, it is never true.
func (s *Server) holds(c *pb.Compare) bool {
	var kvs []*mvccpb.KeyValue
	for _, key := range s.within(c.Key, c.RangeEnd) {
		if kv := s.at(key, s.revision); kv != nil {
			kvs = append(kvs, kv)
		}
	}
	if len(kvs) == 0 {
		// A missing key has no value, so not even "not equal" is true.
		if c.Target == pb.Compare_VALUE {
			return false
		}
		kvs = []*mvccpb.KeyValue{{}}
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !compare(c, kv) })
}

func compare(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var n int
	switch c.Target {
	case pb.Compare_VALUE:
		n = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		n = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		n = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		n = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		n = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return n == 0
	case pb.Compare_NOT_EQUAL:
		return n != 0
	case pb.Compare_GREATER:
		return n > 0
	default:
		return n < 0
	}
}

// writing collects the changes of a transaction, at its revision.
type writing struct {
	s      *Server
	at     int64
	events []*clientv3.Event
}

func (w *writing) add(kv *mvccpb.KeyValue, kind mvccpb.Event_EventType) {
	key := string(kv.Key)
	if i, found := slices.BinarySearch(w.s.keys, key); !found {
		w.s.keys = slices.Insert(w.s.keys, i, key)
	}
	w.s.history[key] = append(w.s.history[key], kv)
	w.events = append(w.events, &clientv3.Event{Type: kind, Kv: kv})
}

func (w *writing) put(r *pb.PutRequest) {
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, CreateRevision: w.at, ModRevision: w.at, Version: 1}
	if was := w.s.at(string(r.Key), w.at); was != nil {
		// A key that was deleted in between starts again at version 1.
		kv.CreateRevision, kv.Version = was.CreateRevision, was.Version+1
	}
	w.add(kv, mvccpb.PUT)
}

func (w *writing) remove(r *pb.DeleteRangeRequest) (n int64) {
	// A clone, because add may insert into the slice of keys.
	for _, key := range slices.Clone(w.s.within(r.Key, r.RangeEnd)) {
		if w.s.at(key, w.at) == nil {
			continue
		}
		n++
		w.add(&mvccpb.KeyValue{Key: []byte(key), ModRevision: w.at}, mvccpb.DELETE)
	}
	return n
}
