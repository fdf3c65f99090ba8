package deployment

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"dbcontroller/coord"
	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
)

const (
	// MaxParked is how many parked groups of one shard and direction are stored. More
	// would fill the coordination store, and nobody reads them: the transformer is wrong.
	// Several controllers that park at the same time may exceed it for a second.
	MaxParked = 1000
	// overflowSpec is the Spec of the entry that stands for all beyond MaxParked.
	overflowSpec = -2
	// overflowKey comes after all hashes.
	overflowKey = "overflow"
)

// storedParked is the value of a parked key.
type storedParked struct {
	syncer.Parked
	// Overflow counts, in the overflow entry alone, how often a group beyond MaxParked was
	// parked; a group that fails again counts again.
	Overflow int64 `json:"overflow,omitempty"`
}

// IsOverflow reports an entry that stands for groups that were parked beyond MaxParked.
// It blocks the switch like any other, and cannot be waived, for it names nothing.
func IsOverflow(p syncer.Parked) bool { return p.Spec == overflowSpec }

// parkedShard remembers what is stored for a shard, so that not every Park lists it.
type parkedShard struct {
	// turn is one caller's at a time, across calls of the coordination store: it is waited
	// for as those are, by whoever's context allows.
	turn     *semaphore.Weighted
	hashes   map[string]bool
	listed   time.Time
	overflow int64 // not stored yet
	flushed  time.Time
}

// parkedFresh is how long a listing is believed, and how often the overflow is stored.
const parkedFresh = time.Second

func (s *Store) parkedShard(prefix string) *parkedShard {
	s.parkedMu.Lock()
	defer s.parkedMu.Unlock()
	ps := s.parked[prefix]
	if ps == nil {
		ps = &parkedShard{turn: semaphore.NewWeighted(1)}
		s.parked[prefix] = ps
	}
	return ps
}

// Park implements syncer.Journal. A group that is parked already keeps being waived. A
// failed condition is ErrOwnership.
func (s *Store) Park(ctx context.Context, p syncer.Parked, conditions ...coord.Condition) error {
	if err := s.park(ctx, p, conditions); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	return nil
}

func (s *Store) park(ctx context.Context, p syncer.Parked, conditions []coord.Condition) error {
	prefix := s.parkedShardPrefix(p.Direction, p.Shard)
	hash := parkedHash(p.Spec, p.Group)
	ps := s.parkedShard(prefix)
	if err := ps.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer ps.turn.Release(1)
	if now := time.Now(); ps.hashes == nil || now.Sub(ps.listed) > parkedFresh {
		kvs, _, err := s.coord.List(ctx, prefix)
		if err != nil {
			return err
		}
		ps.hashes, ps.listed = map[string]bool{}, now
		for _, kv := range kvs {
			if h := kv.Key[len(prefix):]; h != overflowKey {
				ps.hashes[h] = true
			}
		}
	}
	if !ps.hashes[hash] && len(ps.hashes) >= MaxParked {
		return s.parkOverflow(ctx, ps, p, conditions)
	}
	err := s.updateParked(ctx, prefix+hash, conditions, func(old *storedParked) storedParked {
		if old != nil && old.Version > p.Version {
			return *old // an older state that comes late says nothing about the newer one
		}
		p := p
		p.Waived = p.Waived || old != nil && old.Waived
		return storedParked{Parked: p}
	})
	if err == nil {
		ps.hashes[hash] = true
	}
	return err
}

// parkOverflow counts a group beyond the limit. The first one is stored at once, for it
// must block the switch before anything that met it counts as done; the count follows.
func (s *Store) parkOverflow(ctx context.Context, ps *parkedShard, p syncer.Parked, conditions []coord.Condition) error {
	ps.overflow++
	if time.Since(ps.flushed) < parkedFresh {
		return nil
	}
	err := s.updateParked(ctx, s.parkedShardPrefix(p.Direction, p.Shard)+overflowKey, conditions, func(old *storedParked) storedParked {
		n := ps.overflow
		if old != nil {
			n += old.Overflow
		}
		return storedParked{Overflow: n, Parked: syncer.Parked{
			Direction: p.Direction, Shard: p.Shard, Spec: overflowSpec, Version: p.Version,
			Group: base64.StdEncoding.EncodeToString([]byte(overflowKey + "/" + shardKey(p.Shard))),
			Error: fmt.Sprintf("more than %d groups of this shard cannot be moved; beyond those listed it happened %d times, the latest: %s/%s: %s",
				MaxParked, n, p.Kind, p.Key, p.Error),
		}}
	})
	if err != nil {
		return err
	}
	ps.overflow, ps.flushed = 0, time.Now()
	return nil
}

// updateParked changes one entry by compare-and-swap, so that a waiver that comes in
// meanwhile is not lost. old is nil where there is none.
func (s *Store) updateParked(ctx context.Context, key string, conditions []coord.Condition, change func(old *storedParked) storedParked) error {
	if len(conditions) > maxConditions {
		return fmt.Errorf("%d conditions, at most %d fit into a commit", len(conditions), maxConditions)
	}
	wait := newBackOff()
	conflict := int64(-1) // the revision of the key at the last conflict
	for {
		kv, err := s.coord.Get(ctx, key)
		if err != nil && !errors.Is(err, coord.ErrNotFound) {
			return err
		}
		if conflict == kv.Mod && len(conditions) > 0 {
			return ErrOwnership
		}
		var old *storedParked
		if kv.Mod > 0 {
			old = &storedParked{}
			if err := json.Unmarshal(kv.Value, old); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrCorrupt, key, err)
			}
		}
		value, err := json.Marshal(change(old))
		if err != nil {
			return err
		}
		_, err = s.coord.Commit(ctx,
			append([]coord.Condition{{Key: key, Revision: kv.Mod}}, conditions...), []coord.Op{{Key: key, Value: value}})
		if err == nil || !again(err) {
			return err
		}
		conflict = -1
		if errors.Is(err, coord.ErrConflict) {
			conflict = kv.Mod
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// Unpark implements syncer.Journal. Of an overflow entry it removes the block as a whole:
// for a caller who knows by comparison that everything beyond the list is in order.
func (s *Store) Unpark(ctx context.Context, p syncer.Parked) error {
	prefix := s.parkedShardPrefix(p.Direction, p.Shard)
	hash := parkedHash(p.Spec, p.Group)
	if IsOverflow(p) {
		hash = overflowKey
	}
	ps := s.parkedShard(prefix)
	if err := ps.turn.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("unpark: %w", err)
	}
	defer ps.turn.Release(1)
	if err := s.removeParked(ctx, prefix+hash, p.Version); err != nil {
		return fmt.Errorf("unpark: %w", err)
	}
	if IsOverflow(p) {
		ps.overflow, ps.flushed = 0, time.Time{}
	} else {
		delete(ps.hashes, hash)
	}
	return nil
}

// removeParked deletes an entry that is not of a later version than upTo.
func (s *Store) removeParked(ctx context.Context, key, upTo string) error {
	wait := newBackOff()
	for {
		kv, err := s.coord.Get(ctx, key)
		if errors.Is(err, coord.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		var old storedParked
		if err := json.Unmarshal(kv.Value, &old); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCorrupt, key, err)
		}
		if old.Version > upTo {
			return nil
		}
		_, err = s.coord.Commit(ctx, []coord.Condition{{Key: key, Revision: kv.Mod}}, []coord.Op{{Key: key, Delete: true}})
		if err == nil || !again(err) {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// Parked implements syncer.Journal; overflow entries are among the result (IsOverflow).
func (s *Store) Parked(ctx context.Context, dir syncer.DirectionKey, shard int) ([]syncer.Parked, error) {
	prefix := s.parkedPrefix(dir)
	if shard >= 0 {
		prefix = s.parkedShardPrefix(dir, shard)
	}
	return s.listParked(ctx, prefix)
}

func (s *Store) listParked(ctx context.Context, prefix string) ([]syncer.Parked, error) {
	kvs, _, err := s.coord.List(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list parked: %w", err)
	}
	list := make([]syncer.Parked, 0, len(kvs))
	for _, kv := range kvs {
		var p storedParked
		if err := json.Unmarshal(kv.Value, &p); err != nil {
			return nil, fmt.Errorf("list parked: %w: %s: %w", ErrCorrupt, kv.Key, err)
		}
		list = append(list, p.Parked)
	}
	return list, nil
}

// ParkedNow lists what is parked in the directions that the record says are copied now.
func (s *Store) ParkedNow(ctx context.Context) ([]syncer.Parked, error) {
	d, err := s.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("list parked: %w", err)
	}
	return s.parkedOf(ctx, d)
}

func (s *Store) parkedOf(ctx context.Context, d upgradestate.Deployment) ([]syncer.Parked, error) {
	var all []syncer.Parked
	for _, dir := range directions(d) {
		list, err := s.Parked(ctx, dir, -1)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// NotParkedError says that nothing of this name is parked, and what is.
type NotParkedError struct {
	Kind, Key string
	Parked    []string // some, as kind/key
	Total     int
}

func (e *NotParkedError) Error() string {
	if e.Total == 0 {
		return fmt.Sprintf("%s/%s is not parked: nothing is", e.Kind, e.Key)
	}
	more := ""
	if n := e.Total - len(e.Parked); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s/%s is not parked: parked are %s%s", e.Kind, e.Key, strings.Join(e.Parked, ", "), more)
}

// Waive lets the upgrade go on without what is parked under this name, in the directions
// that are copied now. An unknown name is a *NotParkedError.
func (s *Store) Waive(ctx context.Context, kind, key string) (syncer.Parked, error) {
	list, err := s.ParkedNow(ctx)
	if err != nil {
		return syncer.Parked{}, fmt.Errorf("waive: %w", err)
	}
	list = slices.DeleteFunc(list, IsOverflow)
	var waived *syncer.Parked
	for _, p := range list {
		if p.Kind != kind || p.Key != key {
			continue
		}
		p.Waived = true
		err := s.updateParked(ctx, s.parkedShardPrefix(p.Direction, p.Shard)+parkedHash(p.Spec, p.Group), nil,
			func(old *storedParked) storedParked {
				if old != nil {
					p = old.Parked
					p.Waived = true
				}
				return storedParked{Parked: p}
			})
		if err != nil {
			return syncer.Parked{}, fmt.Errorf("waive: %w", err)
		}
		waived = &p
	}
	if waived != nil {
		return *waived, nil
	}
	const shown = 20
	unknown := &NotParkedError{Kind: kind, Key: key, Total: len(list)}
	for _, p := range list[:min(len(list), shown)] {
		unknown.Parked = append(unknown.Parked, p.Kind+"/"+p.Key)
	}
	return syncer.Parked{}, unknown
}
