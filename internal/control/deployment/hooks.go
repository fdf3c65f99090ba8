package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/upgradestate"
)

var _ hooks.Store = (*Store)(nil)

func (s *Store) hooksKey() string { return s.key("hooks") }

// LoadHooks implements hooks.Store. Revision 0 means that nothing is stored.
func (s *Store) LoadHooks(ctx context.Context) (state hooks.State, revision int64, err error) {
	kv, err := s.coord.Get(ctx, s.hooksKey())
	if errors.Is(err, coord.ErrNotFound) {
		return state, 0, nil
	}
	if err != nil {
		return state, 0, fmt.Errorf("load hooks: %w", err)
	}
	if err := json.Unmarshal(kv.Value, &state); err != nil {
		return state, 0, fmt.Errorf("load hooks: %w: %s: %w", ErrCorrupt, kv.Key, err)
	}
	return state, kv.Mod, nil
}

// SaveHooks implements hooks.Store. After a conflict or an unknown outcome it returns
// hooks.ErrChanged, and the caller loads again to see what is stored.
func (s *Store) SaveHooks(ctx context.Context, state hooks.State, revision int64) (int64, error) {
	value, err := json.Marshal(state)
	if err != nil {
		return 0, fmt.Errorf("save hooks: %w", err)
	}
	at, err := s.coord.Commit(ctx, []coord.Condition{{Key: s.hooksKey(), Revision: revision}}, []coord.Op{{Key: s.hooksKey(), Value: value}})
	// The state has changed, or may have: the caller must load it before it delivers again.
	if again(err) {
		return 0, hooks.ErrChanged
	}
	if err != nil {
		return 0, fmt.Errorf("save hooks: %w", err)
	}
	return at, nil
}

// ForgetHooks implements hooks.Store. It may be repeated.
func (s *Store) ForgetHooks(ctx context.Context) error {
	// Read first: a delete would change the revision even if there is nothing to delete.
	_, err := s.coord.Get(ctx, s.hooksKey())
	if errors.Is(err, coord.ErrNotFound) {
		return nil
	}
	if err == nil {
		_, err = s.coord.Commit(ctx, nil, []coord.Op{{Key: s.hooksKey(), Delete: true}})
	}
	if err != nil {
		return fmt.Errorf("forget hooks: %w", err)
	}
	return nil
}

// BlockedBy implements hooks.Store. It counts the parked groups that block the current direction.
func (s *Store) BlockedBy(ctx context.Context, d upgradestate.Deployment) (direction string, count int64, err error) {
	for _, dir := range Directions(d) {
		list, err := s.ParkedOf(ctx, d)
		return string(dir), CountParked(list).Blocking, err
	}
	return "", 0, nil
}
