package memstore

import (
	"context"
	"fmt"
	"strings"
)

// sweepable begins the names of scratch collections.
const sweepable = "dbc_"

// Sweep drops every collection and view whose name begins with a prefix: scratch collections
// of a caller that may have died, which hold no data of an application.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	if !strings.HasPrefix(prefix, sweepable) || prefix == sweepable {
		return fmt.Errorf("sweep: names that begin with %q are not those of scratch collections", prefix)
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	for name, col := range s.db.byName {
		if strings.HasPrefix(name, prefix) {
			s.drop(col)
		}
	}
	for name := range s.db.views { // those over others
		if strings.HasPrefix(name, prefix) {
			delete(s.db.views, name)
		}
	}
	return nil
}
