package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/record"
)

// write sends a modifying transaction on keys of our own once. ErrUnknown: it may or may not have
// had an effect.
func (s *Store) write(ctx context.Context, what string, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	return s.transact(ctx, what, cmps, then, els, true)
}

// transact is write for any keys. absent: a key that still does not exist proves that the transaction
// of a full etcd had no effect. A client may have deleted a new record by then.
func (s *Store) transact(ctx context.Context, what string, cmps []clientv3.Cmp, then, els []clientv3.Op, absent bool) (*clientv3.TxnResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err) // nothing was sent
	}
	// A client that retries by itself could run the transaction twice.
	resp, err := s.conn.Txn(etcdconn.Once(ctx)).If(cmps...).Then(then...).Else(els...).Commit()
	switch {
	case err == nil:
		return resp, nil
	// The write that crosses the quota takes effect and has the same answer as a refused one.
	case etcdconn.NoSpace(err):
		outcome := record.ErrUnknown
		if etcdconn.Untouched(ctx, s.conn, cmps, then, absent) {
			outcome = record.ErrUnavailable
		}
		return nil, fmt.Errorf("%s: %w: %w", what, outcome, errFull)
	case etcdconn.TooLarge(err):
		return nil, fmt.Errorf("%s: %w: %w", what, errTooLarge, err)
	case etcdconn.Refused(err):
		return nil, fmt.Errorf("%s: %w", what, s.conn.Denied(err))
	default:
		// The request may have reached etcd.
		return nil, fmt.Errorf("%s: %w: %w", what, record.ErrUnknown, err)
	}
}

// read sends a read-only transaction at the newest revision.
func (s *Store) read(ctx context.Context, what string, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := s.conn.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit()
	if err != nil {
		return nil, s.readError(what, err)
	}
	// Callers index the answers by their requests.
	want := len(then)
	if !resp.Succeeded && len(cmps) > 0 {
		want = len(els)
	}
	if len(resp.Responses) != want {
		return nil, fmt.Errorf("%s: etcd gave %d answers to %d requests", what, len(resp.Responses), want)
	}
	return resp, nil
}

// readError wraps the error of a failed read.
func (s *Store) readError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	// The caller's own limit says nothing about the database.
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	case status.Code(err) == codes.Unavailable, errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader):
		return fmt.Errorf("%s: %w: %w", what, record.ErrUnavailable, err)
	// A read that begins anew succeeds.
	case compacted(err):
		return fmt.Errorf("%s: %w: %w", what, record.ErrUnavailable, err)
	default:
		return fmt.Errorf("%s: %w", what, s.conn.Denied(err))
	}
}

// readable reports whether the next read shows the outcome of a write, so that its caller can go on.
// In a full etcd the caller would write and fail again until there is room.
func readable(ctx context.Context, err error) bool {
	return errors.Is(err, record.ErrUnknown) && !errors.Is(err, errFull) && ctx.Err() == nil
}

// compacted reports that a request needs history that etcd has discarded.
func compacted(err error) bool { return errors.Is(err, rpctypes.ErrCompacted) }

// get returns the value and the revision of one key, read at the newest revision. nil: no such key.
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

// absent returns the condition that a key does not exist.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// unchanged returns the condition that a key still has the revision at which it was read.
func unchanged(key string, mod int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", mod)
}

// IsUnavailable reports whether an error of any request means that etcd was unreachable, or had no
// leader or no space. The same request may succeed later. The result says nothing about effects:
// after a write, check for ErrUnknown.
func IsUnavailable(err error) bool {
	var known rpctypes.EtcdError
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, record.ErrUnavailable), errors.Is(err, errFull):
		return true
	// A known error has a definite code. Others are judged by their gRPC status.
	case errors.As(err, &known):
		return known.Code() == codes.Unavailable
	}
	var answer interface{ GRPCStatus() *status.Status }
	return errors.As(err, &answer) && (answer.GRPCStatus().Code() == codes.Unavailable || answer.GRPCStatus().Code() == codes.DeadlineExceeded)
}
