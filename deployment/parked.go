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

	"dbcontroller.dev/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

const (
	// MaxParked is how many parked groups of one shard and direction are stored. More
	// would fill the coordination store, and nobody reads them: the transformer is wrong.
	// Several controllers that park at the same time may exceed it for a second.
	MaxParked = 1000
	// MaxParkedBytes bounds what they take, as names may be long.
	MaxParkedBytes = 1 << 20
	// overflowSpec is the Spec of the entry that stands for all beyond MaxParked.
	overflowSpec = syncer.OverflowSpec
	// overflowKey comes after all hashes.
	overflowKey = "overflow"
	// waivedKinds is where a direction keeps the kinds that are waived as a whole. It comes
	// after all shards.
	waivedKinds = "kinds/"
)

// storedParked is the value of a parked key.
type storedParked struct {
	syncer.Parked
	// Overflow counts, in the overflow entry alone, how often a group beyond MaxParked was
	// parked; a group that fails again counts again.
	Overflow int64 `json:"overflow,omitempty"`
}

// IsOverflow reports an entry that stands for groups of a kind that were parked beyond
// MaxParked. It blocks the switch like any other, and is waived only with its whole kind,
// for it names nothing.
func IsOverflow(p syncer.Parked) bool { return p.Spec == overflowSpec }

// parkedShard remembers what is stored for a shard, so that not every Park lists it.
type parkedShard struct {
	// turn is one caller's at a time, across calls of the coordination store: it is waited
	// for as those are, by every caller whose context allows it.
	turn   *semaphore.Weighted
	hashes map[string]int // bytes of the entry
	bytes  int            // of all
	listed time.Time
	over   map[string]*overflow // by kind
}

// overflow is what was parked of a kind beyond MaxParked.
type overflow struct {
	count   int64 // not stored yet
	flushed time.Time
}

// overflowHash stands in a key where the hash of a group would.
func overflowHash(kind string) string {
	if kind == "" {
		return overflowKey
	}
	return overflowKey + "." + url.PathEscape(kind)
}

// parkedFresh is how long a listing is believed, and how often the overflow is stored.
const parkedFresh = time.Second

func (s *Store) parkedShard(prefix string) *parkedShard {
	s.parkedMu.Lock()
	defer s.parkedMu.Unlock()
	ps := s.parked[prefix]
	if ps == nil {
		ps = &parkedShard{turn: semaphore.NewWeighted(1), over: map[string]*overflow{}}
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
		ps.hashes, ps.bytes, ps.listed = map[string]int{}, 0, now
		for _, kv := range kvs {
			if h := kv.Key[len(prefix):]; !strings.HasPrefix(h, overflowKey) {
				ps.note(h, len(kv.Value))
			}
		}
	}
	size := parkedBytes + len(p.Kind) + len(p.Key) + len(p.Group) + len(p.Error)
	if _, stands := ps.hashes[hash]; !stands && (len(ps.hashes) >= MaxParked || ps.bytes+size > MaxParkedBytes) {
		return s.parkOverflow(ctx, ps, p, conditions)
	}
	err := s.updateParked(ctx, prefix+hash, conditions, func(old *storedParked) storedParked {
		if old != nil && old.Version > p.Version {
			return *old // an older state that comes late says nothing about the newer one
		}
		p := p
		p.Waived = p.Waived || old != nil && old.Waived && !old.Kept
		return storedParked{Parked: p}
	})
	if err == nil {
		ps.note(hash, size)
	}
	return err
}

// parkedBytes is about what an entry has besides its names and its reason.
const parkedBytes = 300

// note notes an entry of so many bytes. The list was asked for before.
func (ps *parkedShard) note(hash string, size int) {
	ps.bytes += size - ps.hashes[hash]
	ps.hashes[hash] = size
}

// forget forgets an entry, be it one of another store, and whether or not the list was asked
// for.
func (ps *parkedShard) forget(hash string) {
	ps.bytes -= ps.hashes[hash]
	delete(ps.hashes, hash)
}

// parkOverflow counts a group beyond the limit. The first one is stored at once, for it
// must block the switch before anything that met it counts as done; the count follows.
func (s *Store) parkOverflow(ctx context.Context, ps *parkedShard, p syncer.Parked, conditions []coord.Condition) error {
	over := ps.over[p.Kind]
	if over == nil {
		over = &overflow{}
		ps.over[p.Kind] = over
	}
	over.count++
	if time.Since(over.flushed) < parkedFresh {
		return nil
	}
	err := s.updateParked(ctx, s.parkedShardPrefix(p.Direction, p.Shard)+overflowHash(p.Kind), conditions, func(old *storedParked) storedParked {
		n := over.count
		if old != nil {
			n += old.Overflow
		}
		return storedParked{Overflow: n, Parked: syncer.Parked{
			Direction: p.Direction, Shard: p.Shard, Kind: p.Kind, Spec: overflowSpec, Version: p.Version,
			Group: base64.StdEncoding.EncodeToString([]byte(overflowHash(p.Kind) + "/" + shardKey(p.Shard))),
			Error: fmt.Sprintf("more than %d groups, or %d bytes of their names, of this shard cannot be moved; beyond those listed it happened %d times, the latest: %s/%s: %s",
				MaxParked, MaxParkedBytes, n, p.Kind, p.Key, p.Error),
		}}
	})
	if err != nil {
		return err
	}
	over.count, over.flushed = 0, time.Now()
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
			if json.Unmarshal(kv.Value, old) != nil {
				old = nil // made anew: nothing else would ever make it readable
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
		hash = overflowHash(p.Kind)
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
		delete(ps.over, p.Kind)
	} else {
		ps.forget(hash)
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
		if json.Unmarshal(kv.Value, &old) != nil || old.Version > upTo {
			return nil // it stays, and blocks, where its version is not known
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

// Parked implements syncer.Journal; overflow entries are among the result (IsOverflow). An
// entry of a kind that is waived as a whole counts as waived, whenever it was parked: that
// is looked up here and stored nowhere else, so that nobody who parks can miss it.
func (s *Store) Parked(ctx context.Context, dir syncer.DirectionKey, shard int) ([]syncer.Parked, error) {
	prefix := s.parkedPrefix(dir)
	var kvs []coord.KV
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

// decodeParked reads what lies below the prefix of a direction; other keys are left out. An entry
// that cannot be read is one of UnreadableSpec.
func decodeParked(dir syncer.DirectionKey, prefix string, kvs []coord.KV) []syncer.Parked {
	waived := map[string]bool{}
	for _, kv := range kvs {
		if escaped, ok := strings.CutPrefix(kv.Key, prefix+waivedKinds); ok {
			if kind, err := url.PathUnescape(escaped); err == nil { // otherwise it waives nothing
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

// ParkedNow lists what is parked in the directions that the record says are copied now.
func (s *Store) ParkedNow(ctx context.Context) ([]syncer.Parked, error) {
	d, err := s.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("list parked: %w", err)
	}
	return s.ParkedOf(ctx, d)
}

// ParkedOf is ParkedNow for a record that was read already.
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
