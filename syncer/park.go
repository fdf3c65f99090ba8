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

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// park stores that a group cannot be migrated. The caller waits for it before the work that met the
// group counts as done.
func (e *Engine) park(ctx context.Context, id transform.GroupID, version record.Version, why error) error {
	kind, key := e.parkedName(id)
	return e.parkAs(ctx, id, kind, key, version, why)
}

// parkAs is park with the kind and key to show.
func (e *Engine) parkAs(ctx context.Context, id transform.GroupID, kind, key string, version record.Version, why error) error {
	text := why.Error() // without values of records
	// Error texts contain no values of records. Revealed adds them.
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
	p.Waived = old.Waived && !old.Kept // a waiver survives a new reason
	e.mu.Unlock()
	// The stored entry is as good. A write for each retry would fill the coordination store.
	if known && old.Error == p.Error && old.version().Compare(version) >= 0 {
		return nil
	}
	right, err := e.rightToPark(p.Shard)
	if err == nil {
		err = e.Journal.Park(ctx, p, right)
	}
	if err != nil {
		// The lock is lost. Without a check the engine would go on with shards of another
		// controller.
		if errors.Is(err, coord.ErrConflict) {
			e.lookAtOwned()
		}
		return fmt.Errorf("park %s/%s: %w", kind, key, err)
	}
	e.mu.Lock()
	e.parked[id], e.unlisted[id] = p, true // a list already on its way lacks the entry
	e.mu.Unlock()
	return nil
}

// rightToPark returns the lock for parking a group: its shard's, or any owned shard's, since a
// copied range contains groups of all shards. Without it, a controller that lost its locks
// unnoticed could park a group that others have applied since, which ends a switch. With it, the
// store refuses and the controller reads the group again.
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

// errNoShards is a temporary error: ownership may return.
var errNoShards = errors.New("this controller no longer has a shard")

// longestReason is the maximum number of bytes of a stored error. A panic contains a stack.
const longestReason = 4 << 10

func shortened(text string) string {
	if len(text) <= longestReason {
		return text
	}
	return strings.ToValidUTF8(text[:longestReason], "") + "..."
}

// parkedName returns a kind and key by which people can find the group: its first source selector,
// or its first target selector if the source has none.
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

// unpark removes the entry of a group after its state at a version was written to the target. It
// keeps entries of a later state. It also keeps entries for differences, since writing the group
// again does not make it equal (unparkEqual).
func (e *Engine) unpark(ctx context.Context, id transform.GroupID, version record.Version) error {
	e.mu.Lock()
	p, known := e.parked[id]
	e.mu.Unlock()
	if !known || p.Differs || p.version().Compare(version) > 0 {
		return nil
	}
	return e.unparkEntry(ctx, id, p, version)
}

// unparkEqual removes the entry of a group that differed, after a comparison found it equal.
func (e *Engine) unparkEqual(ctx context.Context, id transform.GroupID, version record.Version) error {
	e.mu.Lock()
	p := e.parked[id]
	e.mu.Unlock()
	if !p.Differs {
		return nil
	}
	return e.unparkEntry(ctx, id, p, version)
}

// unparkEntry removes an entry from the journal and then from memory.
func (e *Engine) unparkEntry(ctx context.Context, id transform.GroupID, p Parked, version record.Version) error {
	// First, so that a kill in between makes the engine remove both again.
	if err := e.endWaiver(ctx, p); err != nil {
		return err
	}
	p.Version = version.String() // the journal keeps an entry for a later state
	if err := e.Journal.Unpark(ctx, p); err != nil {
		return fmt.Errorf("unpark %s/%s: %w", p.Kind, p.Key, err)
	}
	e.mu.Lock()
	// Another worker may have parked a later state during the call.
	if now := e.parked[id]; now.version().Compare(version) <= 0 {
		delete(e.parked, id)
	}
	e.unlisted[id] = true
	e.announce()
	e.mu.Unlock()
	return nil
}

// ID returns the parked group. If Spec is negative, the entry is for no group of the direction, and
// Kind and Key name a record. A Group that is not base64 is an error.
func (p Parked) ID() (transform.GroupID, error) {
	name, err := base64.StdEncoding.DecodeString(p.Group)
	if err != nil {
		return transform.GroupID{}, fmt.Errorf("parked %s/%s: %w", p.Kind, p.Key, err)
	}
	return transform.GroupID{Spec: p.Spec, Name: string(name)}, nil
}

// version returns the source version of the parked state, zero if it is unknown.
func (p Parked) version() (v record.Version) {
	if err := v.UnmarshalText([]byte(p.Version)); err != nil {
		return record.Version{}
	}
	return v
}

// ungroupedKey is a key that belongs to no group, with the reason.
type ungroupedKey struct {
	kind string
	key  record.Key
	err  error
}

// noSpec marks the parked entry of a key without a group.
const noSpec = -1

// OverflowSpec is the Parked.Spec of an entry that stands for further groups of a kind, which are
// too many for the journal to list.
const OverflowSpec = -2

// UnreadableSpec is the Parked.Spec of an entry that the journal cannot read. Its group is unknown.
const UnreadableSpec = -5

// longSpec marks the parked entry of a key that is too long to store. The entry has a digest of the
// key, so that only a change event of the record can show that it is gone.
const longSpec = -4

// id returns an id for the entry, unique to kind and key.
func (k ungroupedKey) id() transform.GroupID {
	if len(k.key) > record.MaxKey {
		sum := sha256.Sum256([]byte(k.key))
		return transform.GroupID{Spec: longSpec, Name: k.kind + "\x00" + string(sum[:])}
	}
	return transform.GroupID{Spec: noSpec, Name: k.kind + "\x00" + string(k.key)}
}

// parkKeys parks keys without a group, each under its own id.
func (e *Engine) parkKeys(ctx context.Context, keys []ungroupedKey, version record.Version) error {
	for _, k := range keys {
		if err := e.parkAs(ctx, k.id(), k.kind, k.key.String(), version, k.err); err != nil {
			return err
		}
	}
	return nil
}

// changedKeys parks changed keys without a group if the source still has them, and unparks the
// others.
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

// lookFor reads records, few at a time if they are large, and calls found for each with the version
// of the read.
func (e *Engine) lookFor(ctx context.Context, ns record.Reader, v transform.View, sel []record.Selector, found func(i int, there bool, version record.Version) error) error {
	type name struct {
		kind string
		key  record.Key
	}
	first := 0 // index in sel of the first record of a run
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

// selectNamed returns selectors for the records of noSpec and orphanSpec entries.
func selectNamed(ids []transform.GroupID) []record.Selector {
	sel := make([]record.Selector, len(ids))
	for i, id := range ids {
		kind, key, _ := strings.Cut(id.Name, "\x00")
		sel[i] = record.Selector{Kind: kind, Key: record.Key(key)}
	}
	return sel
}

// mostBeyond is the maximum number of parked groups that an engine remembers beyond the journal's
// list. Further ones differ again until the next retry, which delays a switch.
const mostBeyond = 20_000

// overflowed is a kind with more parked groups in a shard than the journal lists.
type overflowed struct {
	shard int
	kind  string
}

// watchParked notes in parkedNews when the parked entries may have changed. It returns false if the
// journal cannot watch them. The signal comes before the list, so no list is older than its signal.
func (e *Engine) watchParked(ctx context.Context, g *errgroup.Group) bool {
	journal, can := e.Journal.(ParkedWatcher)
	if !can {
		return false
	}
	changes := journal.WatchParked(ctx, e.key)
	e.parkedNews.Store(true)
	g.Go(func() error {
		for range changes {
			e.parkedNews.Store(true)
		}
		return ctx.Err()
	})
	return true
}

// refreshParked lists the parked entries of the whole direction. Other controllers park groups of
// our shards while they copy their ranges, and operators waive entries. Changes that this engine
// makes during the call are newer than the list and win.
func (e *Engine) refreshParked(ctx context.Context) error {
	// Two lists at a time would share unlisted, and the older one could win.
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
	beyond := map[overflowed]bool{} // whether the overflow entry is waived
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
	// Keeps groups beyond the journal's list. Otherwise they would count as different forever, and
	// a waiver of their kind would not let the switch start.
	room := mostBeyond
	for id, p := range e.parked {
		waived, over := beyond[overflowed{p.Shard, p.Kind}]
		if _, listed := parked[id]; !listed && over && id.Spec != OverflowSpec && e.shards[p.Shard] != nil && room > 0 {
			p.Waived, p.Error = waived, "" // the listed entries show examples of reasons
			parked[id] = p
			room--
		}
	}
	// Changed by this engine while the list was read.
	for id := range e.unlisted {
		delete(parked, id)
		if p, stands := e.parked[id]; stands {
			parked[id] = p
		}
	}
	e.parked = parked
	return nil
}

// retryEvery is the interval of retries of parked groups, and retryAtOnce the number of groups per
// retry. The cause may be gone, such as a unique value that another record has given up, although
// the group itself has not changed.
const (
	retryEvery       = 5 * time.Second
	retryInSwitching = 250 * time.Millisecond
	retryAtOnce      = 100
)

// retryParked applies parked groups of owned shards again.
func (e *Engine) retryParked(ctx context.Context, every time.Duration) error {
	if time.Since(e.retried) < every {
		return nil
	}
	e.retried = time.Now()
	var ids, keys, orphans, others []transform.GroupID
	var notBefore record.Version // not older than any parked state
	e.mu.Lock()
	for id, p := range e.parked {
		if p.Waived || len(ids)+len(keys)+len(orphans) == retryAtOnce {
			continue
		}
		// Another controller retries these, but some may be needed to resolve an exchange below.
		if e.shards[p.Shard] == nil {
			if id.Spec >= 0 {
				others = append(others, id)
			}
			continue
		}
		// The other negative specs cannot be looked up.
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
		// Groups that exchange a unique value block each other unless they are written together,
		// and the other one may belong to another controller's shard.
		ids = append(ids, others[:min(len(others), retryAtOnce)]...)
	}
	if err := e.bring(ctx, ids, notBefore, forRepair); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		// The group may have been parked for a difference, and only a comparison ends that.
		if s := e.shards[e.shardOf(id)]; s != nil {
			s.addDifferent(id)
		}
	}
	return nil
}

// parkedIn counts the entries of a shard that are not waived. e.mu is held.
func (e *Engine) parkedIn(shard int) (n int64) {
	for _, p := range e.parked {
		if p.Shard == shard && !p.Waived {
			n++
		}
	}
	return n
}
