package etcdconn

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Once has a request with the returned context sent at most once: where its answer is lost, a
// second attempt of a transaction that had gone through would look like one that conflicts.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, sentKey{}, &sent{}) }

// sent is what became of the first attempt of one request.
type sent struct{ outcome error }

type sentKey struct{}

// sendOnce stands between the client's own retries and the wire. clientv3 does not
// repeat a transaction after a broken connection, but it does after any answer
// Canceled or DeadlineExceeded while the caller's ctx is alive, which a proxy or a
// reset stream can produce after the transaction went through.
func sendOnce(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	s, ok := ctx.Value(sentKey{}).(*sent)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if s.outcome != nil {
		return status.Errorf(codes.Unknown, "not repeated after: %v", s.outcome)
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err != nil && !Refused(err) {
		s.outcome = err
	}
	return err
}

// Refused reports whether an error proves that a request had no effect: the server
// names a reason that it checks beforehand, or the request never left. Only errors
// that are known count; whatever is new is of unknown outcome.
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

// MakeRoom is what a person does about etcd that is full. An embedded one does it itself.
const MakeRoom = "run 'etcdctl compact' with a recent revision, 'etcdctl defrag' and 'etcdctl alarm disarm', or give etcd a higher --quota-backend-bytes"

// TooLarge reports whether a request has more bytes, or operations, than etcd takes.
func TooLarge(err error) bool {
	known := rpctypes.Error(err)
	return errors.Is(known, rpctypes.ErrRequestTooLarge) || errors.Is(known, rpctypes.ErrTooManyOps) ||
		strings.Contains(rpctypes.ErrorDesc(err), "message larger than max")
}

// NoSpace reports whether etcd refuses writes because its quota was reached.
func NoSpace(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) }
