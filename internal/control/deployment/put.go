package deployment

import (
	"context"

	"dbcontroller.dev/internal/coord"
)

// put changes the value of a key with swap. old is nil if the key is absent.
func (s *Store) put(ctx context.Context, key string, lease coord.LeaseID, change func(old []byte) ([]byte, error)) error {
	_, err := s.puts.swap(ctx, s.coord, key, nil, func(kv coord.KV, _ error) (*coord.Op, error) {
		// The new value may depend on the old one, so compute it again after each conflict.
		value, err := change(kv.Value)
		id := lease
		if id == keepLease {
			id = kv.Lease
		}
		return &coord.Op{Value: value, Lease: id}, err
	})
	return err
}

// keepLease makes put keep the current lease of the key.
const keepLease coord.LeaseID = -1
