package etcdstore

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Vacate is Clear: foreign keys below the prefix keep nothing from being removed.
func (s *Store) Vacate(ctx context.Context) (left []string, err error) { return s.Clear(ctx) }

// Clear removes this package's own keys once no kind is left. It returns other keys below the
// prefix, which stay. While a collection, mark or claim exists, it removes nothing and returns
// their names.
func (s *Store) Clear(ctx context.Context) (left []string, err error) {
	own, others, _, err := s.inventory(ctx)
	if err != nil {
		return nil, err
	}
	var empty []clientv3.Cmp // conditions: nothing of a living namespace exists
	for _, lived := range []string{s.at.gates(), s.at.name(""), s.at.place(""), s.at.marks(), s.at.claims()} {
		empty = append(empty, absent(lived).WithPrefix())
		for _, key := range own {
			// Gates are named by their identity, which tells an operator nothing.
			if name, is := strings.CutPrefix(key, lived); is && lived != s.at.gates() {
				left = append(left, name)
			}
		}
	}
	if len(others) > 0 {
		left = append(left, some(others))
	}
	// The conditions protect a namespace that begins meanwhile.
	all, err := s.remove(ctx, "clear", own, empty...)
	if err == nil && !all && len(left) == 0 {
		left = []string{s.at.all()} // another process has begun to use it
	}
	return left, err
}
