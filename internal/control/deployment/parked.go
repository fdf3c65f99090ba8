package deployment

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

const (
	// MaxParked bounds the stored parked groups of one shard and direction. More would fill the
	// coordination store without use, since the transformer must be wrong. Several controllers that
	// park at the same time may exceed it for a second.
	MaxParked = 1000
	// MaxParkedBytes bounds their bytes, because names may be long.
	MaxParkedBytes = 1 << 20
	// overflowSpec is the Spec of the entry for all groups beyond MaxParked.
	overflowSpec = syncer.OverflowSpec
	// overflowKey sorts after all hashes.
	overflowKey = "overflow"
	// waivedKinds is the key prefix for kinds that are waived as a whole. It sorts after all
	// shards.
	waivedKinds = "kinds/"
)

// storedParked is the value of a parked key.
type storedParked struct {
	syncer.Parked
	// Overflow is set only in an overflow entry. It counts the attempts to park a group beyond
	// MaxParked. A group that fails again counts again.
	Overflow int64 `json:"overflow,omitempty"`
}

// IsOverflow reports whether an entry stands for the groups of a kind beyond MaxParked. The entry
// blocks the switch like any other. It identifies no group, so it can be waived only with its whole
// kind.
func IsOverflow(p syncer.Parked) bool { return p.Spec == overflowSpec }

// parkedShard caches the stored entries of a shard, so that not every Park lists them.
type parkedShard struct {
	// turn admits one caller at a time, and is held across calls to the coordination store. Unlike
	// a mutex, it lets a waiting caller give up when its context ends.
	turn   *semaphore.Weighted
	hashes map[string]int // bytes of the entry
	bytes  int            // of all entries
	listed time.Time
	over   map[string]*overflow // by kind
}

// overflow counts the groups of a kind beyond MaxParked.
type overflow struct {
	count   int64 // not stored yet
	flushed time.Time
}

// overflowHash takes the place of a group's hash in a key.
func overflowHash(kind string) string {
	if kind == "" {
		return overflowKey
	}
	return overflowKey + "." + url.PathEscape(kind)
}

// parkedFresh is how long a listing is used, and how often the overflow is stored.
const parkedFresh = time.Second

func (s *Store) parkedShard(prefix string) *parkedShard {
	// One entry per prefix, so that all callers share the listing.
	s.parkedMu.Lock()
	defer s.parkedMu.Unlock()
	ps := s.parked[prefix]
	if ps == nil {
		ps = &parkedShard{turn: semaphore.NewWeighted(1), over: map[string]*overflow{}}
		s.parked[prefix] = ps
	}
	return ps
}

// Park implements syncer.Journal. A group that is already parked stays waived. A failed condition
// is ErrOwnership.
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
	// Other controllers and operators change the entries too, so list them again.
	if now := time.Now(); ps.hashes == nil || now.Sub(ps.listed) > parkedFresh {
		kvs, _, err := s.coord.List(ctx, prefix)
		if err != nil {
			return err
		}
		ps.hashes, ps.bytes, ps.listed = map[string]int{}, 0, now
		for _, kv := range kvs {
			if h := kv.Key[len(prefix):]; !strings.HasPrefix(h, overflowKey) {
				ps.note(h, len(kv.Value))
			}
		}
	}
	// Estimate the stored size before storing.
	size := parkedBytes + len(p.Kind) + len(p.Key) + len(p.Group) + len(p.Error)
	// A group that is already stored is updated even beyond the limit.
	if _, stands := ps.hashes[hash]; !stands && (len(ps.hashes) >= MaxParked || ps.bytes+size > MaxParkedBytes) {
		return s.parkOverflow(ctx, ps, p, conditions)
	}
	err := s.updateParked(ctx, prefix+hash, conditions, func(old *storedParked) storedParked {
		if old != nil && old.Version > p.Version {
			return *old // a late older state does not replace a newer one
		}
		p := p
		// An operator's waiver stays when the group fails again, unless the record exists in the
		// target.
		p.Waived = p.Waived || old != nil && old.Waived && !old.Kept
		return storedParked{Parked: p}
	})
	if err == nil {
		ps.note(hash, size)
	}
	return err
}

// parkedBytes estimates the size of an entry without its names and its error.
const parkedBytes = 300

// note records an entry of size bytes. The shard must have been listed.
func (ps *parkedShard) note(hash string, size int) {
	ps.bytes += size - ps.hashes[hash]
	ps.hashes[hash] = size
}

// forget removes an entry from the cache. The entry may come from another store, and the shard may
// not have been listed yet.
func (ps *parkedShard) forget(hash string) {
	ps.bytes -= ps.hashes[hash]
	delete(ps.hashes, hash)
}

// parkOverflow counts a group beyond the limit. It stores the first one at once: it must block the
// switch before the work that met it counts as done. Later counts are stored once a second.
func (s *Store) parkOverflow(ctx context.Context, ps *parkedShard, p syncer.Parked, conditions []coord.Condition) error {
	over := ps.over[p.Kind]
	if over == nil {
		over = &overflow{}
		ps.over[p.Kind] = over
	}
	// Count in memory and store once a second: thousands of groups may fail at once.
	over.count++
	if time.Since(over.flushed) < parkedFresh {
		return nil
	}
	// The sum of all controllers is stored, so add to the stored count.
	err := s.updateParked(ctx, s.parkedShardPrefix(p.Direction, p.Shard)+overflowHash(p.Kind), conditions, func(old *storedParked) storedParked {
		n := over.count
		if old != nil {
			n += old.Overflow
		}
		return storedParked{Overflow: n, Parked: syncer.Parked{
			Direction: p.Direction, Shard: p.Shard, Kind: p.Kind, Spec: overflowSpec, Version: p.Version,
			Group: base64.StdEncoding.EncodeToString([]byte(overflowHash(p.Kind) + "/" + shardKey(p.Shard))),
			Error: fmt.Sprintf("more than %d groups, or %d bytes of their names, of this shard cannot be migrated; beyond the listed groups this happened %d times, the latest: %s/%s: %s",
				MaxParked, MaxParkedBytes, n, p.Kind, p.Key, p.Error),
		}}
	})
	if err != nil {
		return err
	}
	over.count, over.flushed = 0, time.Now()
	return nil
}

// updateParked changes one entry by compare-and-swap, so that a concurrent waiver is not lost. old
// is nil if there is no entry or it is unreadable.
func (s *Store) updateParked(ctx context.Context, key string, conditions []coord.Condition, change func(old *storedParked) storedParked) error {
	if len(conditions) > maxConditions {
		return fmt.Errorf("%d conditions, but at most %d fit into a commit", len(conditions), maxConditions)
	}
	wait := newBackOff()
	conflict := int64(-1) // revision of the key at the last conflict
	for {
		kv, err := s.coord.Get(ctx, key)
		if err != nil && !errors.Is(err, coord.ErrNotFound) {
			return err
		}
		// The entry is unchanged since the conflict, so one of the conditions failed.
		if conflict == kv.Mod && len(conditions) > 0 {
			return ErrOwnership
		}
		var old *storedParked
		if kv.Mod > 0 {
			old = &storedParked{}
			if json.Unmarshal(kv.Value, old) != nil {
				old = nil // replace it, since nothing else would ever repair it
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
		// Only a conflict can prove that a condition failed; an unknown outcome cannot.
		if errors.Is(err, coord.ErrConflict) {
			conflict = kv.Mod
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// Unpark implements syncer.Journal. Unparking an overflow entry removes it as a whole. Its caller
// must know from a comparison that every group beyond the list is in order.
func (s *Store) Unpark(ctx context.Context, p syncer.Parked) error {
	prefix := s.parkedShardPrefix(p.Direction, p.Shard)
	hash := parkedHash(p.Spec, p.Group)
	if IsOverflow(p) {
		hash = overflowHash(p.Kind)
	}
	ps := s.parkedShard(prefix)
	// Wait for a Park of this shard, which may be about to store the group.
	if err := ps.turn.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("unpark: %w", err)
	}
	defer ps.turn.Release(1)
	if err := s.removeParked(ctx, prefix+hash, p.Version); err != nil {
		return fmt.Errorf("unpark: %w", err)
	}
	if IsOverflow(p) {
		// Store the next group beyond the limit at once again.
		delete(ps.over, p.Kind)
	} else {
		ps.forget(hash)
	}
	return nil
}

// removeParked deletes an entry unless its version is later than upTo.
func (s *Store) removeParked(ctx context.Context, key, upTo string) error {
	wait := newBackOff()
	for {
		// Without a condition a concurrent Park of a newer version could be lost.
		kv, err := s.coord.Get(ctx, key)
		if errors.Is(err, coord.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		var old storedParked
		if json.Unmarshal(kv.Value, &old) != nil || old.Version > upTo {
			return nil // keep it if its version is unknown: it must block
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

// Parked implements syncer.Journal. The result contains overflow entries (see IsOverflow). A
// negative shard means all shards. An entry of a kind that is waived as a whole counts as waived,
// whenever it was parked. That is decided here and stored nowhere else, so that no writer of
// entries can miss it.
func (s *Store) Parked(ctx context.Context, dir syncer.DirectionKey, shard int) ([]syncer.Parked, error) {
	prefix := s.parkedPrefix(dir)
	var kvs []coord.KV
	// A whole direction includes its waived kinds.
	lists := []string{prefix}
	if shard >= 0 {
		lists = []string{prefix + waivedKinds, s.parkedShardPrefix(dir, shard)}
	}
	for _, below := range lists {
		more, _, err := s.coord.List(ctx, below)
		if err != nil {
			return nil, fmt.Errorf("list parked: %w", err)
		}
		kvs = append(kvs, more...)
	}
	return decodeParked(dir, prefix, kvs), nil
}

// decodeParked decodes the entries below the prefix of a direction, and ignores other keys. An
// unreadable entry becomes one with UnreadableSpec.
func decodeParked(dir syncer.DirectionKey, prefix string, kvs []coord.KV) []syncer.Parked {
	waived := map[string]bool{}
	// Waivers of whole kinds first: they apply to all entries.
	for _, kv := range kvs {
		if escaped, ok := strings.CutPrefix(kv.Key, prefix+waivedKinds); ok {
			if kind, err := url.PathUnescape(escaped); err == nil { // an unreadable key waives nothing
				waived[kind] = true
			}
		}
	}
	list := make([]syncer.Parked, 0, len(kvs))
	for _, kv := range kvs {
		if !strings.HasPrefix(kv.Key, prefix) || strings.HasPrefix(kv.Key, prefix+waivedKinds) {
			continue
		}
		var p storedParked
		if err := json.Unmarshal(kv.Value, &p); err != nil {
			list = append(list, unreadableParked(dir, prefix, kv, err))
			continue
		}
		p.Waived = p.Waived || waived[p.Kind]
		list = append(list, p.Parked)
	}
	return list
}

// WatchParked implements syncer.ParkedWatcher. It also signals each time it lists again, since a watch
// may have died unnoticed.
func (s *Store) WatchParked(ctx context.Context, dir syncer.DirectionKey) <-chan struct{} {
	return conflate(ctx, func(signal func(struct{})) {
		s.follow(ctx, s.parkedPrefix(dir), func(map[string]coord.KV) { signal(struct{}{}) }, nil)
	})
}

// ParkedNow returns the parked groups of the direction that the record syncs now.
func (s *Store) ParkedNow(ctx context.Context) ([]syncer.Parked, error) {
	d, err := s.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("list parked: %w", err)
	}
	return s.ParkedOf(ctx, d)
}

// ParkedOf is ParkedNow for a record that is already read.
func (s *Store) ParkedOf(ctx context.Context, d upgradestate.Deployment) ([]syncer.Parked, error) {
	var all []syncer.Parked
	for _, dir := range Directions(d) {
		list, err := s.Parked(ctx, dir, -1)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
