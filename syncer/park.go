package syncer

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// park stores that a group cannot be migrated, before anything that met it counts
// as done.
func (e *Engine) park(ctx context.Context, id transform.GroupID, version record.Version, why error) error {
	kind, key := e.parkedName(id)
	return e.parkAs(ctx, id, kind, key, version, why)
}

func (e *Engine) parkAs(ctx context.Context, id transform.GroupID, kind, key string, version record.Version, why error) error {
	text := why.Error() // contains nothing of what the records hold
	if e.cfg.ShowValues {
		text = record.Revealed(why)
	}
	p := Parked{
		Direction: e.key, Shard: e.shardOf(id), Kind: kind, Key: key, Spec: id.Spec,
		Group: base64.StdEncoding.EncodeToString([]byte(id.Name)), Version: version.String(), Error: shortened(text),
		Differs: errors.Is(why, transform.ErrDiffer),
	}
	e.mu.Lock()
	old, known := e.parked[id]
	p.Waived = old.Waived && !old.Kept
	e.mu.Unlock()
	if known && old.Error == p.Error && old.version().Compare(version) >= 0 {
		return nil
	}
	right, err := e.rightToPark(p.Shard)
	if err == nil {
		err = e.Journal.Park(ctx, p, right)
	}
	if err != nil {
		if errors.Is(err, coord.ErrConflict) {
			e.lookAtOwned()
		}
		return fmt.Errorf("park %s/%s: %w", kind, key, err)
	}
	e.mu.Lock()
	e.parked[id], e.unlisted[id] = p, true
	e.mu.Unlock()
	return nil
}

// rightToPark is the lock under which a group of a shard is parked: the shard's, or that of
// another one, for who copies a range meets groups of all shards. A controller that has lost
// its locks without noticing would otherwise park what others have applied since, which
// ends a switch. It reads the group again instead.
func (e *Engine) rightToPark(shard int) (coord.Condition, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[shard]; s != nil {
		return s.lock.Condition(), nil
	}
	if len(e.shards) == 0 {
		return coord.Condition{}, errNoShards
	}
	return e.shards[slices.Min(slices.Collect(maps.Keys(e.shards)))].lock.Condition(), nil
}

var errNoShards = errors.New("this controller no longer has a shard")

// longestReason is how many bytes of an error are stored. A panic's has a stack.
const longestReason = 4 << 10

func shortened(text string) string {
	if len(text) <= longestReason {
		return text
	}
	return strings.ToValidUTF8(text[:longestReason], "") + "..."
}

// parkedName is a name that people can find the group by: its first source selector, or
// that of a target record that the source knows nothing of.
func (e *Engine) parkedName(id transform.GroupID) (kind, key string) {
	sel := e.Direction.SourceSelect(id)
	if len(sel) == 0 {
		sel = e.Direction.TargetSelect(id)
	}
	if len(sel) == 0 {
		return "", id.Name
	}
	return sel[0].Kind, sel[0].Key.String()
}

// unpark removes the entry of a group whose state at a version was written to the target. An
// entry that was parked for a later state stays: what came through was older. So does one
// that is parked because writing it does not make it equal (unparkEqual).
func (e *Engine) unpark(ctx context.Context, id transform.GroupID, version record.Version) error {
	e.mu.Lock()
	p, known := e.parked[id]
	e.mu.Unlock()
	if !known || p.Differs || p.version().Compare(version) > 0 {
		return nil
	}
	return e.unparkEntry(ctx, id, p, version)
}

// unparkEqual removes the entry of a group that differed, and that a comparison has found equal.
func (e *Engine) unparkEqual(ctx context.Context, id transform.GroupID, version record.Version) error {
	e.mu.Lock()
	p := e.parked[id]
	e.mu.Unlock()
	if !p.Differs {
		return nil
	}
	return e.unparkEntry(ctx, id, p, version)
}

func (e *Engine) unparkEntry(ctx context.Context, id transform.GroupID, p Parked, version record.Version) error {
	p.Version = version.String()
	if err := e.Journal.Unpark(ctx, p); err != nil {
		return fmt.Errorf("unpark %s/%s: %w", p.Kind, p.Key, err)
	}
	e.mu.Lock()
	if now := e.parked[id]; now.version().Compare(version) <= 0 {
		delete(e.parked, id)
	}
	e.unlisted[id] = true
	e.announce()
	e.mu.Unlock()
	return nil
}

// ID is the group that was parked. Where its Spec is negative it is none of the direction's,
// and Kind and Key name a record.
func (p Parked) ID() (transform.GroupID, error) {
	name, err := base64.StdEncoding.DecodeString(p.Group)
	if err != nil {
		return transform.GroupID{}, fmt.Errorf("parked %s/%s: %w", p.Kind, p.Key, err)
	}
	return transform.GroupID{Spec: p.Spec, Name: string(name)}, nil
}

// version is the state that was parked; zero if it is not known.
func (p Parked) version() (v record.Version) {
	if err := v.UnmarshalText([]byte(p.Version)); err != nil {
		return record.Version{}
	}
	return v
}

// ungroupedKey is a key from which no group follows.
type ungroupedKey struct {
	kind string
	key  record.Key
	err  error
}

// noSpec marks the parked entry of a key that no spec could group.
const noSpec = -1

// OverflowSpec marks an entry that stands for groups of a kind which the journal does not
// list, for there are too many of them.
const OverflowSpec = -2

// UnreadableSpec marks an entry that the journal has and cannot read. It stands for a group that
// nobody knows.
const UnreadableSpec = -5

// longSpec marks the parked entry of a key that is too long to be stored. A digest stands
// for it, so that only a change of the record itself shows that it is gone.
const longSpec = -4

func (k ungroupedKey) id() transform.GroupID {
	if len(k.key) > record.MaxKey {
		sum := sha256.Sum256([]byte(k.key))
		return transform.GroupID{Spec: longSpec, Name: k.kind + "\x00" + string(sum[:])}
	}
	return transform.GroupID{Spec: noSpec, Name: k.kind + "\x00" + string(k.key)}
}

// parkKeys parks keys that have no group, each under a group of its own.
func (e *Engine) parkKeys(ctx context.Context, keys []ungroupedKey, version record.Version) error {
	for _, k := range keys {
		if err := e.parkAs(ctx, k.id(), k.kind, k.key.String(), version, k.err); err != nil {
			return err
		}
	}
	return nil
}

// changedKeys parks keys that have changed and have no group, unless the source no longer
// has them.
func (e *Engine) changedKeys(ctx context.Context, keys []ungroupedKey, notBefore record.Version) error {
	if len(keys) == 0 {
		return nil
	}
	sel := make([]record.Selector, len(keys))
	for i, k := range keys {
		sel[i] = record.Selector{Kind: k.kind, Key: k.key}
	}
	return e.unfenced(ctx, func() error {
		src, err := e.sourceView(ctx, notBefore)
		if err != nil {
			return err
		}
		return e.lookFor(ctx, e.Source, src, sel, func(i int, there bool, version record.Version) error {
			if there {
				return e.parkKeys(ctx, keys[i:i+1], version)
			}
			return e.unpark(ctx, keys[i].id(), version)
		})
	})
}

// lookFor reads records, few at a time if they are large, and reports of each whether it is
// there.
func (e *Engine) lookFor(ctx context.Context, ns record.Reader, v transform.View, sel []record.Selector, found func(i int, there bool, version record.Version) error) error {
	type name struct {
		kind string
		key  record.Key
	}
	first := 0
	return transform.Each(&e.sizes, sel, func(run []record.Selector, bytes int) error {
		snap, err := ns.Read(ctx, record.ReadRequest{Tokens: v.Tokens, NotBefore: v.NotBefore, Bytes: bytes, Select: run})
		if err != nil {
			return err
		}
		there := map[name]bool{}
		for _, r := range snap.Records {
			there[name{r.Kind, r.Key}] = true
		}
		for i, s := range run {
			if err := found(first+i, there[name{s.Kind, s.Key}], snap.Version); err != nil {
				return err
			}
		}
		first += len(run)
		return nil
	})
}

// retryKeys unparks keys without a group that the source no longer has.
func (e *Engine) retryKeys(ctx context.Context, ids []transform.GroupID, notBefore record.Version) error {
	if len(ids) == 0 {
		return nil
	}
	src, err := e.sourceView(ctx, notBefore)
	if err != nil {
		return err
	}
	err = e.lookFor(ctx, e.Source, src, selectNamed(ids), func(i int, there bool, version record.Version) error {
		if there {
			return nil
		}
		return e.unpark(ctx, ids[i], version)
	})
	if err != nil {
		return fmt.Errorf("read parked keys: %w", err)
	}
	return nil
}

// selectNamed selects the records that noSpec and orphanSpec entries are of.
func selectNamed(ids []transform.GroupID) []record.Selector {
	sel := make([]record.Selector, len(ids))
	for i, id := range ids {
		kind, key, _ := strings.Cut(id.Name, "\x00")
		sel[i] = record.Selector{Kind: kind, Key: record.Key(key)}
	}
	return sel
}

// mostBeyond is how many groups an engine remembers as parked that the journal has no room for.
// The rest differs until it is looked at again, which keeps a switch back.
const mostBeyond = 20_000

// overflowed is a kind of which more groups of a shard are parked than are listed.
type overflowed struct {
	shard int
	kind  string
}

// refreshParked lists what is parked in the whole direction: other controllers park
// groups of our shards when they copy their ranges, and operators waive. What this engine
// parks or unparks while the list is on its way is newer than the list.
func (e *Engine) refreshParked(ctx context.Context) error {
	if err := e.listing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer e.listing.Release(1)
	e.mu.Lock()
	e.unlisted = map[transform.GroupID]bool{}
	e.mu.Unlock()
	list, err := e.Journal.Parked(ctx, e.key, -1)
	if err != nil {
		return fmt.Errorf("list parked: %w", err)
	}
	parked := map[transform.GroupID]Parked{}
	beyond := map[overflowed]bool{} // whether it is waived
	for _, p := range list {
		id, err := p.ID()
		if err != nil {
			return err
		}
		parked[id] = p
		if p.Spec == OverflowSpec {
			beyond[overflowed{p.Shard, p.Kind}] = p.Waived
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// Groups that the list has no room for are parked all the same: forgotten, they would count
	// as different for ever, and a waiver of their kind would not let the switch begin.
	room := mostBeyond
	for id, p := range e.parked {
		waived, over := beyond[overflowed{p.Shard, p.Kind}]
		if _, listed := parked[id]; !listed && over && id.Spec != OverflowSpec && e.shards[p.Shard] != nil && room > 0 {
			p.Waived, p.Error = waived, "" // the entry of the others says one of the reasons
			parked[id] = p
			room--
		}
	}
	for id := range e.unlisted {
		delete(parked, id)
		if p, stands := e.parked[id]; stands {
			parked[id] = p
		}
	}
	e.parked = parked
	return nil
}

// retryEvery is how often parked groups are tried again, and retryAtOnce how many: what
// refused them may be gone (a unique value that another record gave up since) without
// the group itself having changed.
const (
	retryEvery       = 5 * time.Second
	retryInSwitching = 250 * time.Millisecond
	retryAtOnce      = 100
)

// retryParked applies parked groups of owned shards, if that is possible by now.
func (e *Engine) retryParked(ctx context.Context, every time.Duration) error {
	if time.Since(e.retried) < every {
		return nil
	}
	e.retried = time.Now()
	var ids, keys, orphans, others []transform.GroupID
	var notBefore record.Version // what was parked is not older than this
	e.mu.Lock()
	for id, p := range e.parked {
		if p.Waived || len(ids)+len(keys)+len(orphans) == retryAtOnce {
			continue
		}
		if e.shards[p.Shard] == nil {
			if id.Spec >= 0 {
				others = append(others, id)
			}
			continue
		}
		switch {
		case id.Spec >= 0:
			ids = append(ids, id)
		case id.Spec == noSpec:
			keys = append(keys, id)
		case id.Spec == orphanSpec:
			orphans = append(orphans, id)
		}
		if v := p.version(); v.Compare(notBefore) > 0 {
			notBefore = v
		}
	}
	e.mu.Unlock()
	if err := e.retryKeys(ctx, keys, notBefore); err != nil {
		return err
	}
	if err := e.retryOrphans(ctx, orphans); err != nil {
		return err
	}
	if len(ids) > 0 {
		// Two groups that exchange a unique value keep each other out, unless they are
		// applied together, and the other may be in the shard of somebody else.
		ids = append(ids, others[:min(len(others), retryAtOnce)]...)
	}
	if err := e.bring(ctx, ids, notBefore, forRepair); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		// Compared again like any change: it may have been parked for a difference.
		if s := e.shards[e.shardOf(id)]; s != nil {
			s.addDifferent(id)
		}
	}
	return nil
}

// parkedIn counts what is parked and not waived in a shard. e.mu is held.
func (e *Engine) parkedIn(shard int) (n int64) {
	for _, p := range e.parked {
		if p.Shard == shard && !p.Waived {
			n++
		}
	}
	return n
}
