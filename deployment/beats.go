package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/identity"
)

var _ identity.Beats = (*Store)(nil)

func (s *Store) beatKey(version string) string { return s.key("beats", url.PathEscape(version)) }

// LoadBeat implements identity.Beats.
func (s *Store) LoadBeat(ctx context.Context, version string) (b identity.Beat, err error) {
	if _, err = s.load(ctx, s.beatKey(version), &b); err != nil {
		err = fmt.Errorf("load the beat of %s: %w", version, err)
	}
	return b, err
}

// SaveBeat implements identity.Beats.
func (s *Store) SaveBeat(ctx context.Context, version string, b identity.Beat) error {
	value, err := json.Marshal(b)
	if err == nil {
		err = s.put(ctx, s.beatKey(version), 0, func(old []byte) ([]byte, error) {
			var has identity.Beat
			if old != nil {
				if err := json.Unmarshal(old, &has); err != nil {
					return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
				}
			}
			if has.Count >= b.Count {
				return old, nil
			}
			return value, nil
		})
	}
	if err != nil {
		return fmt.Errorf("save the beat of %s: %w", version, err)
	}
	return nil
}

// ForgetBeats forgets what databases held, so that they may hold less: a recovery takes them as
// they are.
func (s *Store) ForgetBeats(ctx context.Context, versions ...string) error {
	for _, version := range versions {
		_, err := s.coord.Commit(ctx, nil, []coord.Op{{Key: s.beatKey(version), Delete: true}})
		if err != nil && !errors.Is(err, coord.ErrNotFound) {
			return fmt.Errorf("forget the beat of %s: %w", version, err)
		}
	}
	return nil
}
