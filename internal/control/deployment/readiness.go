package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/switchover"
)

func (s *Store) readinessKey() string { return s.key("readiness") }

// PublishReadiness publishes what an upgrade still needs before its switch, for the lifetime of the
// lease. Nil deletes it. Only the driver of the switch calls it.
func (s *Store) PublishReadiness(ctx context.Context, o *switchover.Readiness, lease coord.LeaseID) error {
	op := coord.Op{Key: s.readinessKey(), Delete: true}
	if o != nil {
		value, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("publish readiness: %w", err)
		}
		op = coord.Op{Key: s.readinessKey(), Value: value, Lease: lease}
	}
	if _, err := s.coord.Commit(ctx, nil, []coord.Op{op}); err != nil {
		return fmt.Errorf("publish readiness: %w", err)
	}
	return nil
}

// Readiness returns the latest published readiness, nil if nobody drives an upgrade.
func (s *Store) Readiness(ctx context.Context) (*switchover.Readiness, error) {
	kv, err := s.coord.Get(ctx, s.readinessKey())
	if errors.Is(err, coord.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read readiness: %w", err)
	}
	return decodeReadiness(kv)
}

// decodeReadiness decodes a published readiness.
func decodeReadiness(kv coord.KV) (*switchover.Readiness, error) {
	o := &switchover.Readiness{}
	if err := json.Unmarshal(kv.Value, o); err != nil {
		return nil, corrupt(kv.Key, err)
	}
	return o, nil
}
