package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// Forget removes what the package has below its prefix about an application's keys, and leaves
// those. The records of a managed kind are below the prefix themselves, so their collection stays,
// without its claim and markers.
func (s *Store) Forget(ctx context.Context, tok record.Token) error {
	name, err := s.Locate(ctx, tok.ID)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	tok.Name = name
	if s.keys(tok) != nil {
		// Behind a fence, the application's roles have lost permissions.
		if name != tok.Kind {
			return fmt.Errorf("forget %s: it is at %s: %w", tok.Kind, name, record.ErrFenced)
		}
		return s.drop(ctx, tok, false)
	}
	claimed, _, err := s.get(ctx, "forget "+tok.Kind, s.at.claimed(tok.ID))
	if err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpDelete(s.at.closed(tok.ID), clientv3.WithPrefix()), clientv3.OpDelete(s.at.once(tok.ID), clientv3.WithPrefix())}
	if claimed != nil {
		ops = append(ops, clientv3.OpDelete(s.at.claimed(tok.ID)), clientv3.OpDelete(s.at.claim(string(claimed))))
	}
	if _, err := s.write(ctx, "forget "+tok.Kind, nil, ops, nil); err != nil {
		return err
	}
	return s.unlabel(ctx, tok.ID)
}

// FreeNumber looks at the collection of an application's keys, which outlives a deployment that was
// lost. Names that it can no longer get are stored by its identity. Other collections have
// identities of their own, and leave nothing when they are dropped.
func (s *Store) FreeNumber(ctx context.Context, kind string) (uint64, error) {
	id, _, err := s.get(ctx, "number of "+kind, s.at.place(kind))
	if err != nil || id == nil {
		return 1, err
	}
	closed := s.at.closed(string(id))
	resp, err := s.conn.Get(ctx, closed, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, s.readError("number of "+kind, err)
	}
	var marks []string
	for _, kv := range resp.Kvs {
		marks = append(marks, strings.TrimPrefix(string(kv.Key), closed))
	}
	return record.FreeNumber(kind, marks)
}
