package memstore

import (
	"context"
	"fmt"
	"strings"
)

// sweepable is the name prefix of scratch collections.
const sweepable = "dbc_"

// Sweep drops all collections and views with a name prefix. They are scratch collections of a
// caller that may have died, and hold no application data.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	// A wrong prefix must never drop an application's collections.
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
	for name := range s.db.views { // views over collections with other names
		if strings.HasPrefix(name, prefix) {
			delete(s.db.views, name)
		}
	}
	return nil
}
