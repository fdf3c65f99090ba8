package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"dbcontroller/coord"
	"dbcontroller/switchover"
)

func (s *Store) outlookKey() string { return s.key("outlook") }

// PublishOutlook says what stands between an upgrade and its switch, for as long as the
// lease lives; with nil nothing is said any more. Only whoever drives calls it.
func (s *Store) PublishOutlook(ctx context.Context, o *switchover.Outlook, lease coord.LeaseID) error {
	op := coord.Op{Key: s.outlookKey(), Delete: true}
	if o != nil {
		value, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("publish outlook: %w", err)
		}
		op = coord.Op{Key: s.outlookKey(), Value: value, Lease: lease}
	}
	if _, err := s.coord.Commit(ctx, nil, []coord.Op{op}); err != nil {
		return fmt.Errorf("publish outlook: %w", err)
	}
	return nil
}

// Outlook is what was published last; nil if nobody drives an upgrade.
func (s *Store) Outlook(ctx context.Context) (*switchover.Outlook, error) {
	kv, err := s.coord.Get(ctx, s.outlookKey())
	if errors.Is(err, coord.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read outlook: %w", err)
	}
	return decodeOutlook(kv)
}

// decodeOutlook reads what a driver has published.
func decodeOutlook(kv coord.KV) (*switchover.Outlook, error) {
	o := &switchover.Outlook{}
	if err := json.Unmarshal(kv.Value, o); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, kv.Key, err)
	}
	return o, nil
}
