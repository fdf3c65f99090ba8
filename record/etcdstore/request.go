package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"dbcontroller.dev/internal/etcdconn"
	"dbcontroller.dev/record"
)

// write sends a transaction that changes something, once. ErrUnknown: it may have had its
// effect.
func (s *Store) write(ctx context.Context, what string, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err) // nothing was sent
	}
	resp, err := s.conn.Txn(etcdconn.Once(ctx)).If(cmps...).Then(then...).Else(els...).Commit()
	switch {
	case err == nil:
		return resp, nil
	case etcdconn.NoSpace(err):
		return nil, fmt.Errorf("%s: %w: etcd is full: %s", what, record.ErrUnavailable, etcdconn.MakeRoom)
	case etcdconn.TooLarge(err):
		return nil, fmt.Errorf("%s: %w: %w", what, errTooLarge, err)
	case etcdconn.Refused(err):
		return nil, fmt.Errorf("%s: %w", what, s.conn.Denied(err))
	default:
		return nil, fmt.Errorf("%s: %w: %w", what, record.ErrUnknown, err)
	}
}

// read sends a transaction that only reads, at the newest revision.
func (s *Store) read(ctx context.Context, what string, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := s.conn.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit()
	return resp, s.readError(what, err)
}

// readError is why a read has failed.
func (s *Store) readError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	case status.Code(err) == codes.Unavailable, errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader):
		return fmt.Errorf("%s: %w: %w", what, record.ErrUnavailable, err)
	default:
		return fmt.Errorf("%s: %w", what, s.conn.Denied(err))
	}
}

// compacted reports that what was asked for is older than the history that etcd keeps.
func compacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }

// get is the value of one key, at the newest revision; nil: there is none.
func (s *Store) get(ctx context.Context, what, key string) (value []byte, mod int64, err error) {
	resp, err := s.conn.Get(ctx, key)
	if err != nil {
		return nil, 0, s.readError(what, err)
	}
	if len(resp.Kvs) == 0 {
		return nil, 0, nil
	}
	return resp.Kvs[0].Value, resp.Kvs[0].ModRevision, nil
}

// absent is the condition that a key is not there.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// unchanged is the condition that a key is as it was read.
func unchanged(key string, mod int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", mod)
}

// IsUnavailable reports whether any error, of whatever request, means that etcd could not be
// reached, had no leader or no room, so that the same may succeed later. It knows nothing of
// effects: after a write, ErrUnknown decides.
func IsUnavailable(err error) bool {
	var known rpctypes.EtcdError
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, record.ErrUnavailable):
		return true
	case errors.As(err, &known):
		return known.Code() == codes.Unavailable
	}
	var answer interface{ GRPCStatus() *status.Status }
	return errors.As(err, &answer) && (answer.GRPCStatus().Code() == codes.Unavailable || answer.GRPCStatus().Code() == codes.DeadlineExceeded)
}
