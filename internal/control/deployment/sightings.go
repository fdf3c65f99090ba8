package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/identity"
)

var _ identity.Sightings = (*Store)(nil)

func (s *Store) sightingKey(version string) string {
	return s.key("sightings", url.PathEscape(version))
}

// LoadSighting implements identity.Sightings. It returns the zero value if no readable
// one is stored.
func (s *Store) LoadSighting(ctx context.Context, version string) (seen identity.Sighting, err error) {
	kv, err := s.coord.Get(ctx, s.sightingKey(version))
	switch {
	case errors.Is(err, coord.ErrNotFound):
		return seen, nil
	case err != nil:
		return seen, fmt.Errorf("load the sighting of %s: %w", version, err)
	}
	if json.Unmarshal(kv.Value, &seen) != nil {
		return identity.Sighting{}, nil // it proves nothing, and the next one replaces it
	}
	return seen, nil
}

// SaveSighting implements identity.Sightings. Every stored sighting is true, so a late save only
// stores an older one.
func (s *Store) SaveSighting(ctx context.Context, version string, seen identity.Sighting) error {
	value, err := json.Marshal(seen)
	if err == nil {
		err = s.put(ctx, s.sightingKey(version), 0, func([]byte) ([]byte, error) { return value, nil })
	}
	if err != nil {
		return fmt.Errorf("save the sighting of %s: %w", version, err)
	}
	return nil
}
