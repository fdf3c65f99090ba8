package memstore

import (
	"context"

	"dbcontroller.dev/record"
)

var _ record.Monitor = (*Store)(nil)

// SetHealth sets the answer of Health for tests. Before the first call a cluster is idle.
func (c *Cluster) SetHealth(h record.Health, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health, c.unmeasured = h, err
}

// Health returns the values of the last SetHealth call.
func (s *Store) Health(ctx context.Context) (record.Health, error) {
	if err := s.begin(ctx); err != nil {
		return record.Health{}, err
	}
	defer s.cluster.mu.Unlock()
	return s.cluster.health, s.cluster.unmeasured
}
