package etcdcoord

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"dbcontroller.dev/coord"
)

func (s *Store) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if err := coord.CheckCommit(conditions, ops); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("commit: %w", err) // nothing was sent
	}
	compares := make([]clientv3.Cmp, len(conditions))
	for i, c := range conditions {
		revision := clientv3.ModRevision(s.prefix + c.Key)
		if c.Create {
			revision = clientv3.CreateRevision(s.prefix + c.Key)
		}
		compares[i] = clientv3.Compare(revision, "=", c.Revision)
	}
	then := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		switch {
		case op.Delete:
			then[i] = clientv3.OpDelete(s.prefix + op.Key)
		case op.Lease != 0:
			then[i] = clientv3.OpPut(s.prefix+op.Key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease)))
		default:
			then[i] = clientv3.OpPut(s.prefix+op.Key, string(op.Value))
		}
	}
	resp, err := s.client.Txn(context.WithValue(ctx, sentKey{}, &sent{})).If(compares...).Then(then...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return 0, fmt.Errorf("commit: %w", coord.ErrLeaseLost)
	case noSpace(err):
		return 0, fmt.Errorf("commit: %w: %s", coord.ErrNoSpace, makeRoom)
	case err != nil && refused(err):
		return 0, fmt.Errorf("commit: %w", s.denied(err))
	case err != nil:
		return 0, fmt.Errorf("commit: %w: %w", coord.ErrUnknown, err)
	case !resp.Succeeded:
		return 0, fmt.Errorf("commit: %w", coord.ErrConflict)
	}
	return resp.Header.Revision, nil
}

// sent is what became of the first attempt of one Commit.
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
	if err != nil && !refused(err) {
		s.outcome = err
	}
	return err
}

// refused reports whether an error proves that a request had no effect: the server
// names a reason that it checks beforehand, or the request never left. Only errors
// that are known count; whatever is new is of unknown outcome.
func refused(err error) bool {
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

// makeRoom is what a person does about etcd that is full. An embedded one does it itself.
const makeRoom = "run 'etcdctl compact' with a recent revision, 'etcdctl defrag' and 'etcdctl alarm disarm', or give etcd a higher --quota-backend-bytes"

// noSpace reports whether etcd refuses writes because its quota was reached.
func noSpace(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) }

// ping reads linearizably. It does not go through the client's retries, whose error
// does not report why a connection cannot be made.
func (s *Store) ping(ctx context.Context) error {
	_, err := pb.NewKVClient(s.client.ActiveConnection()).Range(ctx,
		&pb.RangeRequest{Key: []byte(s.scope + "ping"), CountOnly: true}, grpc.WaitForReady(true))
	return s.denied(err)
}
