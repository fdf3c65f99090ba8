package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"dbcontroller.dev/internal/coord"
)

// FormerNames reports the clients that still use names from before a switch, as the leader has
// observed them.
type FormerNames struct {
	ID      string    `json:"id"`                // of the switch
	Unknown string    `json:"unknown,omitempty"` // why the uses are unknown
	Uses    []NameUse `json:"uses,omitempty"`
}

// NameUse reports the use of one former name.
type NameUse struct {
	Version string     `json:"version"`
	Kind    string     `json:"kind"`
	Reads   int64      `json:"reads"`
	Writes  int64      `json:"writes"`
	Last    string     `json:"last"`            // RFC 3339
	Users   []NameUser `json:"users,omitempty"` // the users that were observed
}

// NameUser is a client of a database.
type NameUser struct {
	Application string `json:"application,omitempty"`
	Driver      string `json:"driver,omitempty"`
	Address     string `json:"address,omitempty"`
	Last        string `json:"last"` // RFC 3339
}

func (s *Store) namesKey() string { return s.key("formernames") }

// PublishNames publishes the use of former names for the lifetime of the lease. Nil deletes it.
// Only the leader calls it.
func (s *Store) PublishNames(ctx context.Context, f *FormerNames, lease coord.LeaseID) error {
	op := coord.Op{Key: s.namesKey(), Delete: true}
	if f != nil {
		value, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("publish former names: %w", err)
		}
		op = coord.Op{Key: s.namesKey(), Value: value, Lease: lease}
	}
	if _, err := s.coord.Commit(ctx, nil, []coord.Op{op}); err != nil {
		return fmt.Errorf("publish former names: %w", err)
	}
	return nil
}

// FormerNames returns the latest published use of former names, nil if nobody observes it.
func (s *Store) FormerNames(ctx context.Context) (*FormerNames, error) {
	kv, err := s.coord.Get(ctx, s.namesKey())
	if errors.Is(err, coord.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read former names: %w", err)
	}
	f := &FormerNames{}
	if err := json.Unmarshal(kv.Value, f); err != nil {
		return nil, corrupt(kv.Key, err)
	}
	return f, nil
}
