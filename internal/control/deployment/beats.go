package deployment

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/identity"
)

var _ identity.Beats = (*Store)(nil)

func (s *Store) beatKey(version string) string { return s.key("beats", url.PathEscape(version)) }

// incarnationKey is the key of the incarnation. It is stored with the beats, so that one request
// reads both. No version has this name, because versions are escaped.
func (s *Store) incarnationKey() string { return s.key("beats", "#incarnation") }

// LoadBeat implements identity.Beats. It returns zero values for what is not stored.
func (s *Store) LoadBeat(ctx context.Context, version string) (b identity.Beat, incarnation string, err error) {
	kvs, _, err := s.coord.List(ctx, s.key("beats", ""))
	for _, kv := range kvs {
		s.puts.set(kv)
		switch kv.Key {
		case s.incarnationKey():
			incarnation = string(kv.Value)
		case s.beatKey(version):
			if err = json.Unmarshal(kv.Value, &b); err != nil {
				err = fmt.Errorf("%w: %s: %w", ErrCorrupt, kv.Key, err)
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("load the beat of %s: %w", version, err)
	}
	return b, incarnation, err
}

// Incarnation returns the random name of this store's record of the deployment, and creates it if
// there is none. Two etcd clusters with the same deployment have different names. Binaries before
// this feature left none.
func (s *Store) Incarnation(ctx context.Context) (string, error) {
	kv, err := s.coord.Get(ctx, s.incarnationKey())
	if err == nil || !errors.Is(err, coord.ErrNotFound) {
		return string(kv.Value), err
	}
	// Another process may create a name at the same time; keep the first one.
	return s.incarnation(ctx, func(old []byte) []byte {
		if len(old) > 0 {
			return old
		}
		return []byte(rand.Text())
	})
}

// Reincarnate sets a new incarnation, for a recovery. Marks with the former incarnation no longer
// belong to this record.
func (s *Store) Reincarnate(ctx context.Context) (string, error) {
	name := []byte(rand.Text())
	return s.incarnation(ctx, func([]byte) []byte { return name })
}

func (s *Store) incarnation(ctx context.Context, change func(old []byte) []byte) (name string, err error) {
	err = s.put(ctx, s.incarnationKey(), 0, func(old []byte) ([]byte, error) {
		value := change(old)
		name = string(value)
		return value, nil
	})
	if err != nil {
		return "", fmt.Errorf("incarnation of %s: %w", s.name, err)
	}
	return name, nil
}

// SaveBeat implements identity.Beats. It never replaces a beat with a lower count.
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
			// A late or repeated save must not lower the beat.
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

// AdvanceBeat implements identity.Beats, in one call of the store. It also requires the record to be
// the one that this process knows, and then confirms it.
func (s *Store) AdvanceBeat(ctx context.Context, version, incarnation string, from, to identity.Beat) (bool, error) {
	beat, knows := s.puts.get(s.beatKey(version))
	name, named := s.puts.get(s.incarnationKey())
	record, read := s.record.get(s.recordKey())
	var has identity.Beat
	if !knows || !named || !read || string(name.Value) != incarnation || json.Unmarshal(beat.Value, &has) != nil || has != from {
		return false, nil
	}
	value, err := json.Marshal(to)
	if err != nil {
		return false, fmt.Errorf("advance the beat of %s: %w", version, err)
	}
	// A store that was emptied, restored or replaced has other values or other revisions.
	rev, err := s.coord.Commit(ctx, []coord.Condition{
		{Key: beat.Key, Revision: beat.Mod, Value: beat.Value},
		{Key: name.Key, Revision: name.Mod, Value: name.Value},
		{Key: record.Key, Revision: record.Mod},
	}, []coord.Op{{Key: beat.Key, Value: value}})
	switch {
	case err == nil:
		s.puts.set(coord.KV{Key: beat.Key, Value: value, Create: beat.Create, Mod: rev})
		s.confirmedMu.Lock()
		defer s.confirmedMu.Unlock()
		s.confirmed = Confirmation{Number: s.confirmed.Number + 1, Incarnation: incarnation, Revision: record.Mod}
		return true, nil
	case again(err):
		// The caller reads what is stored now.
		s.puts.forget(beat.Key)
		s.puts.forget(name.Key)
		return false, nil
	default:
		return false, fmt.Errorf("advance the beat of %s: %w", version, err)
	}
}

// Confirmation is the proof of a beat that etcd has the deployment as this process knows it.
type Confirmation struct {
	Number      uint64 // grows with each confirmation; 0: there was none yet
	Incarnation string // of the deployment in etcd
	Revision    int64  // of the record
}

// Confirmed returns the latest confirmation by AdvanceBeat.
func (s *Store) Confirmed() Confirmation {
	s.confirmedMu.Lock()
	defer s.confirmedMu.Unlock()
	return s.confirmed
}

// ForgetBeats deletes the beats of versions. A recovery accepts databases as they are, even if they
// hold less than before.
func (s *Store) ForgetBeats(ctx context.Context, versions ...string) error {
	for _, version := range versions {
		// No condition: a recovery forgets the beat whatever it is.
		_, err := s.coord.Commit(ctx, nil, []coord.Op{{Key: s.beatKey(version), Delete: true}})
		if err != nil && !errors.Is(err, coord.ErrNotFound) {
			return fmt.Errorf("forget the beat of %s: %w", version, err)
		}
	}
	return nil
}
