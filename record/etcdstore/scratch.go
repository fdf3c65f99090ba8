package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// scratchMade is the value of the key that marks a scratch namespace.
const scratchMade = "made"

// ClaimScratch makes the namespace one that may be thrown away: an empty one, or what an
// earlier scratch namespace of this prefix has left, which is removed first. One with anything
// else in it is refused, and stays as it is.
func (s *Store) ClaimScratch(ctx context.Context) error {
	if err := s.DropScratch(ctx); err != nil {
		return err
	}
	done, err := s.write(ctx, "scratch", []clientv3.Cmp{absent(s.at.all()).WithPrefix()}, []clientv3.Op{clientv3.OpPut(s.at.scratch(), scratchMade)}, nil)
	if err == nil && !done.Succeeded {
		err = errors.New("somebody else has begun to use it")
	}
	return s.scratchError(err)
}

// CheckScratch tries whether the namespace could be a scratch one. It leaves what it finds.
func (s *Store) CheckScratch(ctx context.Context) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	_, err := s.scratchThere(ctx)
	return s.scratchError(err)
}

// DropScratch removes a namespace that ClaimScratch has made, its mark last. One that is not there
// is fine.
func (s *Store) DropScratch(ctx context.Context) error {
	there, err := s.scratchThere(ctx)
	if err != nil || !there {
		return s.scratchError(err)
	}
	own, _, _, err := s.inventory(ctx)
	if err == nil {
		own = append(slices.DeleteFunc(own, func(key string) bool { return key == s.at.scratch() }), s.at.scratch())
		_, err = s.remove(ctx, "scratch", own, clientv3.Compare(clientv3.CreateRevision(s.at.scratch()), ">", 0))
	}
	return s.scratchError(err)
}

// scratchThere reports whether a scratch namespace is there, and refuses anything else.
func (s *Store) scratchThere(ctx context.Context) (bool, error) {
	mark, _, err := s.get(ctx, "scratch", s.at.scratch())
	if err != nil || mark != nil {
		return mark != nil, err
	}
	resp, err := s.conn.Get(ctx, s.at.all(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, s.readError("scratch", err)
	}
	if resp.Count > 0 {
		return false, errors.New("it holds keys that are not a rehearsal's: remove them, or give the version another etcd.prefix")
	}
	return false, nil
}

func (s *Store) scratchError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("scratch keys below %s: %w", s.at.all(), err)
}
