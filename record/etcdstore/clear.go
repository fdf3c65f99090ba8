package etcdstore

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Clear removes what this package keeps next to kinds, once no kind is left, and returns what
// others have below the prefix, which stays. It removes nothing while there is a collection, or
// anything that somebody owns: then that is what it returns.
func (s *Store) Clear(ctx context.Context) (left []string, err error) {
	own, others, _, err := s.inventory(ctx)
	if err != nil {
		return nil, err
	}
	var empty []clientv3.Cmp
	for _, lived := range []string{s.at.gates(), s.at.name(""), s.at.place(""), s.at.marks(), s.at.claims()} {
		empty = append(empty, absent(lived).WithPrefix())
		for _, key := range own {
			if name, is := strings.CutPrefix(key, lived); is && lived != s.at.gates() {
				left = append(left, name)
			}
		}
	}
	if len(others) > 0 {
		left = append(left, some(others))
	}
	all, err := s.remove(ctx, "clear", own, empty...)
	if err == nil && !all && len(left) == 0 {
		left = []string{s.at.all()} // somebody has begun to use it
	}
	return left, err
}
