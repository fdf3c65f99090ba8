package etcdconn

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Once returns a context whose request is sent at most once. Without it, a transaction whose
// response is lost would be sent again, and its own first attempt would look like a conflict.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, sentKey{}, &sent{}) }

// sent holds the error of a request's first attempt.
type sent struct{ outcome error }

type sentKey struct{}

// sendOnce sits between the client's own retries and the wire. clientv3 does not repeat a
// transaction after a broken connection. It does repeat one after Canceled or DeadlineExceeded
// while the caller's ctx is alive. A proxy or a reset stream can produce those after the
// transaction took effect.
func sendOnce(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	s, ok := ctx.Value(sentKey{}).(*sent)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	// The client wants to send again. The code Unknown makes it give up.
	if s.outcome != nil {
		return status.Errorf(codes.Unknown, "not repeated after: %v", s.outcome)
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	// A refused request had no effect, so the client may safely send it again.
	if err != nil && !Refused(err) {
		s.outcome = err
	}
	return err
}

// Refused reports whether an error proves that a request had no effect. Either the server gives a
// reason that it checks before execution, or the request never left. Only known errors count; any
// other has an unknown outcome.
func Refused(err error) bool {
	if text := rpctypes.ErrorDesc(err); text == "there is no address available" ||
		text == "there is no connection available" ||
		strings.Contains(text, "trying to send message larger than max") {
		return true
	}
	var known rpctypes.EtcdError
	if !errors.As(rpctypes.Error(err), &known) {
		return false
	}
	switch known.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// MakeRoom tells an operator how to free space in a full etcd. An embedded etcd does it by itself.
const MakeRoom = "run 'etcdctl compact' with a recent revision, 'etcdctl defrag' and 'etcdctl alarm disarm', or give etcd a higher --quota-backend-bytes"

// TooLarge reports whether a request has more bytes or operations than etcd accepts.
func TooLarge(err error) bool {
	known := rpctypes.Error(err)
	return errors.Is(known, rpctypes.ErrRequestTooLarge) || errors.Is(known, rpctypes.ErrTooManyOps) ||
		strings.Contains(rpctypes.ErrorDesc(err), "message larger than max")
}

// NoSpace reports whether etcd has reached its quota. It proves nothing about the transaction: the one
// that crosses the quota takes effect and is answered with this error, like those that etcd refuses.
func NoSpace(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) }

// Untouched reports whether a transaction that was answered had no effect. It reads a key that the
// transaction puts and whose revision it compares. False: it is unknown. absent also accepts a key
// that was absent and still is. It fits keys that no other process deletes as soon as it sees them.
func Untouched(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then []clientv3.Op, absent bool) bool {
	for i := range cmps {
		c := cmps[i].GetCompare()
		is := c.Target == pb.Compare_MOD || c.Target == pb.Compare_CREATE && c.GetCreateRevision() == 0
		if c.GetModRevision() == 0 && !absent || !is || c.Result != pb.Compare_EQUAL || len(c.RangeEnd) > 0 {
			continue
		}
		if !slices.ContainsFunc(then, func(op clientv3.Op) bool { return op.IsPut() && bytes.Equal(op.KeyBytes(), c.Key) }) {
			continue
		}
		// The read is linearizable, so it sees the effect of an answered transaction.
		resp, err := kv.Get(ctx, string(c.Key), clientv3.WithKeysOnly())
		if err != nil {
			return false
		}
		var mod int64
		if len(resp.Kvs) > 0 {
			mod = resp.Kvs[0].ModRevision
		}
		return mod == c.GetModRevision()
	}
	return false
}
