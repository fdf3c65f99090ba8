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

// ClaimScratch turns an empty prefix into a scratch namespace, which may be dropped as a whole. It
// first removes an earlier scratch namespace of this prefix. If the prefix holds anything else, it
// fails and changes nothing.
func (s *Store) ClaimScratch(ctx context.Context) error {
	if err := s.DropScratch(ctx); err != nil {
		return err
	}
	// The condition fails if another process used the prefix since the check.
	done, err := s.write(ctx, "scratch", []clientv3.Cmp{absent(s.at.all()).WithPrefix()}, []clientv3.Op{clientv3.OpPut(s.at.scratch(), scratchMade)}, nil)
	if err == nil && !done.Succeeded {
		err = errors.New("somebody else has begun to use it")
	}
	return s.scratchError(err)
}

// CheckScratch checks whether the prefix could become a scratch namespace. It changes nothing.
func (s *Store) CheckScratch(ctx context.Context) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	_, err := s.scratchThere(ctx)
	return s.scratchError(err)
}

// DropScratch removes a namespace made by ClaimScratch. It removes the mark last, so that an
// interrupted call can be repeated. A missing namespace is no error.
func (s *Store) DropScratch(ctx context.Context) error {
	there, err := s.scratchThere(ctx)
	if err != nil || !there {
		return s.scratchError(err)
	}
	own, _, _, err := s.inventory(ctx)
	if err == nil {
		// The mark goes last. While it exists, a repeated call may remove the rest.
		own = append(slices.DeleteFunc(own, func(key string) bool { return key == s.at.scratch() }), s.at.scratch())
		_, err = s.remove(ctx, "scratch", own, clientv3.Compare(clientv3.CreateRevision(s.at.scratch()), ">", 0))
	}
	return s.scratchError(err)
}

// scratchThere reports whether a scratch namespace exists. Any other content below the prefix is an
// error.
func (s *Store) scratchThere(ctx context.Context) (bool, error) {
	mark, _, err := s.get(ctx, "scratch", s.at.scratch())
	if err != nil || mark != nil {
		return mark != nil, err
	}
	resp, err := s.conn.Get(ctx, s.at.all(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, s.readError("scratch", err)
	}
	// Without our mark, the keys belong to somebody else and must stay.
	if resp.Count > 0 {
		return false, errors.New("it has keys that do not belong to a rehearsal: remove them, or give the version another etcd.prefix")
	}
	return false, nil
}

func (s *Store) scratchError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("scratch keys below %s: %w", s.at.all(), err)
}
