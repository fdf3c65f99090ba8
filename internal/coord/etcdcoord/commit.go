package etcdcoord

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdconn"
)

func (s *Store) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if err := coord.CheckCommit(conditions, ops); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("commit: %w", err) // nothing was sent
	}
	compares := make([]clientv3.Cmp, 0, len(conditions))
	for _, c := range conditions {
		revision := clientv3.ModRevision(s.prefix + c.Key)
		if c.Create {
			revision = clientv3.CreateRevision(s.prefix + c.Key)
		}
		compares = append(compares, clientv3.Compare(revision, "=", c.Revision))
		if c.Value != nil {
			compares = append(compares, clientv3.Compare(clientv3.Value(s.prefix+c.Key), "=", string(c.Value)))
		}
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
	var otherwise []clientv3.Op
	if len(conditions) > 0 {
		otherwise = []clientv3.Op{clientv3.OpGet(s.prefix + conditions[0].Key)}
	}
	// Once keeps the client from retrying: a second attempt after a success would look like a
	// conflict.
	resp, err := s.client.Txn(etcdconn.Once(ctx)).If(compares...).Then(then...).Else(otherwise...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return 0, fmt.Errorf("commit: %w", coord.ErrLeaseLost)
	// The commit that crosses the quota takes effect and has the same answer as a refused one.
	case etcdconn.NoSpace(err):
		err = fmt.Errorf("%w: %s", coord.ErrNoSpace, etcdconn.MakeRoom)
		if !etcdconn.Untouched(ctx, s.client, compares, then, true) {
			err = fmt.Errorf("%w: %w", coord.ErrUnknown, err)
		}
		return 0, fmt.Errorf("commit: %w", err)
	// The cluster refused the request before it had an effect.
	case err != nil && etcdconn.Refused(err):
		return 0, fmt.Errorf("commit: %w", s.client.Denied(err))
	case err != nil:
		return 0, fmt.Errorf("commit: %w: %w", coord.ErrUnknown, err)
	case !resp.Succeeded:
		conflict := &coord.ConflictError{First: coord.KV{Key: conditions[0].Key}}
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			conflict.First = s.kv(kvs[0])
		}
		return 0, fmt.Errorf("commit: %w", conflict)
	}
	return resp.Header.Revision, nil
}
