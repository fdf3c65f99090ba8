package collections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// After a switch, the previous version follows the active version, so that a rollback finds the
// same collections. It follows indexes that applications create, and changes that decide which
// records a collection accepts: unique indexes and validators. An index that refuses no records
// stays in the old version, even if it is dropped or hidden in the new one. The old applications
// use it for lookups. TTL indexes follow by notes (followExpiry). Changes that cannot
// follow are reported, and never block a rollback. Nothing is built while an upgrade runs.

// retryBack is the pause before another attempt at an index that could not be built in the version
// that was left. Each attempt reads the whole collection.
const retryBack = time.Minute

// lacking holds the differences that a rollback would meet, from the latest check.
type lacking struct {
	mu     sync.Mutex
	epoch  uint64
	lacks  []string
	failed map[string]time.Time // time of failure, by version, kind and changes
}

// RollbackLacks lists, for display, the differences between the collections of the previous version
// and the active ones that a rollback would meet. It returns the latest result of this process, and
// nil if there is none.
func (m *Maintainer) RollbackLacks(d upgradestate.Deployment) []string {
	m.lacking.mu.Lock()
	defer m.lacking.mu.Unlock()
	// A result of an earlier epoch is about another version.
	if m.lacking.epoch != d.Epoch {
		return nil
	}
	return slices.Clone(m.lacking.lacks)
}

// KeepBack makes the previous version follow the active one, until ctx ends. Every controller runs
// it, like KeepIndexes.
func (m *Maintainer) KeepBack(ctx context.Context) error {
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: func(ctx context.Context, _ upgradestate.Deployment) (time.Duration, error) {
			d, err := m.Deployments.Known(ctx) // the record of the last event may be older
			if err != nil {
				return checkForMissing, err
			}
			lacks, err := m.followBack(ctx, d)
			if err != nil {
				lacks = append(lacks, fmt.Sprintf("a look at its indexes and options: %v", err))
			}
			m.lacking.mu.Lock()
			defer m.lacking.mu.Unlock()
			m.lacking.epoch, m.lacking.lacks = d.Epoch, lacks
			return checkForMissing, err
		},
		Same: func(before, now upgradestate.Deployment) bool { return before.Epoch == now.Epoch },
		Failed: func(_ upgradestate.Deployment, err error, repeated bool) {
			if !repeated {
				m.Log.Warn("cannot sync indexes and options of the former version", zap.Error(err))
			}
		},
	}
	return loop.Run(ctx, m.Deployments.Watch(ctx))
}

// backKind is a kind of the previous version, with the changes that it needs to follow.
type backKind struct {
	version string
	kind    upgradestate.Kind
	drop    []string
	build   []bson.Raw
	expiry  map[string]int64 // of build, by name
	options bson.Raw         // all required options; set only if some differ
	differ  []string         // names of differing options
	lacks   []string         // changes that cannot follow, for display
}

// behind lists the pending changes, for display.
func (b backKind) behind() (texts []string) {
	for _, name := range b.drop {
		texts = append(texts, fmt.Sprintf("index %s is missing from the active version, or differs there", name))
	}
	for _, ix := range b.build {
		texts = append(texts, fmt.Sprintf("index %s of the active version is missing", record.IndexName(ix)))
	}
	for _, name := range b.differ {
		texts = append(texts, fmt.Sprintf("its %s differs from the active version", name))
	}
	return texts
}

// followBack makes the previous version follow, unless an upgrade runs. It returns the differences
// that remain.
func (m *Maintainer) followBack(ctx context.Context, d upgradestate.Deployment) (lacks []string, err error) {
	kinds, err := m.backKinds(ctx, d)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		for _, text := range k.lacks {
			lacks = append(lacks, k.line(text))
		}
		// A build could delay the switch. Report the changes, and make them after the upgrade.
		if d.Upgrade != nil {
			for _, text := range k.behind() {
				lacks = append(lacks, k.line(text))
			}
			continue
		}
		done, err := m.bringBack(ctx, k)
		if err != nil {
			lacks = append(lacks, k.line(err.Error()))
		}
		if done {
			m.Log.Info("changed indexes and options to match the active version", zap.String("kind", k.kind.Kind), zap.String("version", k.version),
				zap.Strings("dropped", k.drop), zap.Strings("built", names(k.build)), zap.Strings("options", k.differ))
		}
	}
	return lacks, nil
}

func (b backKind) line(text string) string {
	return fmt.Sprintf("%s (collection %s of %s): %s", b.kind.Kind, b.kind.Physical, b.version, text)
}

// bringBack makes the changes of one kind. done is false if there was nothing to do, or if the last
// attempt failed recently.
func (m *Maintainer) bringBack(ctx context.Context, b backKind) (done bool, err error) {
	if len(b.drop)+len(b.build)+len(b.differ) == 0 {
		return false, nil
	}
	// The id contains every change, so that others are tried at once, and an index that has changed
	// under its name as well.
	id := fmt.Sprintf("%s/%s %v %v %v", b.version, b.kind.Kind, b.drop, b.build, b.options)
	m.lacking.mu.Lock()
	recent := time.Since(m.lacking.failed[id]) < retryBack
	m.lacking.mu.Unlock()
	if recent {
		return false, errors.New("cannot create an index or option of the active version here; retrying within a minute: see the log")
	}
	defer func() {
		m.lacking.mu.Lock()
		defer m.lacking.mu.Unlock()
		// A stop of this process is no failure of the index.
		if err == nil || ctx.Err() != nil {
			delete(m.lacking.failed, id)
			return
		}
		if m.lacking.failed == nil {
			m.lacking.failed = map[string]time.Time{}
		}
		m.lacking.failed[id] = time.Now()
		m.Log.Warn("indexes or options differ from the active version", zap.String("kind", b.kind.Kind), zap.String("version", b.version), zap.Error(err))
	}()
	// Write the notes first. A process that continues must know which indexes this program may
	// drop, and when a TTL index shall delete.
	if _, err := m.Deployments.Apply(ctx, upgradestate.AnnounceIndexes{Version: b.version, Kind: b.kind.Kind, Built: names(b.build)}); err != nil {
		return false, fmt.Errorf("record indexes: %w", err)
	}
	if len(b.expiry) > 0 {
		if _, err := m.Deployments.Apply(ctx, upgradestate.AnnounceExpiry{Version: b.version, Kind: b.kind.Kind, Expiry: b.expiry, Noted: b.kind.Expiry}); err != nil {
			return false, fmt.Errorf("record TTL indexes: %w", err)
		}
	}
	db, tok := m.Database(b.version), syncer.TokenOf(b.kind)
	spec := record.KindSpec{Name: b.kind.Kind, Fixed: true, Shape: record.Shape{Options: b.options}}
	// Reshape leaves the options of a managed kind as they are. If none differ, it must leave
	// these, too.
	change := spec
	change.Fixed = len(b.differ) > 0
	// Drop first: a changed index keeps its name.
	if err := db.Reshape(ctx, tok, change, b.drop); err != nil {
		return false, err
	}
	spec.Shape.Indexes = b.build
	return true, db.BuildIndexes(ctx, tok, spec)
}

// backKinds compares the previous version with the active one. It returns nothing if there is no
// such version, or if it does not follow.
func (m *Maintainer) backKinds(ctx context.Context, d upgradestate.Deployment) (out []backKind, err error) {
	to, ok := m.Target(d)
	if !ok || !m.goesBack(d, to) || !d.LastSwitch.Synced() || m.Database(to) == nil || m.Database(d.CurrentVersion) == nil ||
		d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return nil, nil
	}
	dir, err := m.Registry.Direction(to, d.CurrentVersion)
	if errors.Is(err, transform.ErrNoDirection) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	left, _ := d.Namespace(to)
	active, _ := d.Namespace(d.CurrentVersion)
	for name, carry := range m.Carry.along(dir) {
		old, known := left.Kind(carry.From)
		now, there := active.Kind(name)
		// Without a way back, or during a rename, the kind cannot follow now.
		if carry.Back == nil || !known || !there || old.Pending != nil || now.Pending != nil {
			continue
		}
		was, err := m.describePlace(ctx, to, old)
		if err != nil {
			return nil, err
		}
		is, err := m.describePlace(ctx, d.CurrentVersion, now)
		if err != nil {
			return nil, err
		}
		b := backKind{version: to, kind: old}
		// In a move between locations of one version, the applications stay the same.
		same := upgradestate.APIVersion(to) == upgradestate.APIVersion(d.CurrentVersion)
		// A TTL index that is stopped for a switch counts with its noted expiry.
		if err := b.compare(carry, was.Shape, record.WithExpiry(is.Shape, stopped(is.Shape, now.Expiry)), now.Carried, same); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b backKind) int { return strings.Compare(a.kind.Kind, b.kind.Kind) })
	return out, nil
}

// compare finds the changes that the old kind, with shape was, needs to follow the active one, with
// shape is. carried lists the active indexes that were derived from the old kind. same means that
// both sides have the same API version.
func (b *backKind) compare(carry Carry, was, is record.Shape, carried []string, same bool) error {
	counterpart, err := carry.declared() // active indexes that are not new
	if err != nil {
		return err
	}
	for _, ix := range was.Indexes {
		name := record.IndexName(ix)
		made, ok := carry.made(ix)
		if !ok {
			continue
		}
		counterpart = append(counterpart, record.IndexName(made))
		now := indexNamed(is.Indexes, record.IndexName(made))
		expires := len(record.ExpiryOf(record.Shape{Indexes: []bson.Raw{ix}})) > 0
		ours := slices.Contains(b.kind.Carried, name)
		switch {
		case now == nil && expires: // followExpiry notes that it must not delete
		case now == nil && (ours || slices.Contains(carried, record.IndexName(made)) && (same || record.Refuses(ix))):
			b.drop = append(b.drop, name)
		// The old applications may need it, and it refuses no records.
		case now == nil:
		// Within one version, and for an index that this program built, every change follows.
		case same || ours:
			if record.DifferentIndex(now, made) != "" {
				b.replace(carry, name, now)
			}
		// Between versions, follow only changes that decide which records are accepted.
		case (record.Refuses(now) || record.Refuses(ix)) && record.DifferentIndex(shown(now), shown(made)) != "":
			b.replace(carry, name, now)
		}
	}
	for _, ix := range is.Indexes {
		if slices.Contains(counterpart, record.IndexName(ix)) {
			continue
		}
		back, err := carry.Back(record.Shape{Indexes: []bson.Raw{ix}})
		if err == nil && len(back.Indexes) == 1 && indexNamed(was.Indexes, record.IndexName(back.Indexes[0])) != nil {
			err = errors.New("another index has its name here")
		}
		if err != nil {
			b.lacks = append(b.lacks, fmt.Sprintf("index %s of the active version: %v", record.IndexName(ix), err))
			continue
		}
		b.add(back)
	}
	// Check the round trip. If it changes the options, they are not derived from the old ones.
	back, err := carry.Back(record.Shape{Options: is.Options})
	if err != nil {
		b.lacks = append(b.lacks, fmt.Sprintf("the options of the active version: %v", err))
		return nil
	}
	again, err := carry.Shape(back)
	if err != nil || len(record.DifferentOptions(again.Options, is.Options)) > 0 {
		return err // its options are not derived from the old kind's
	}
	if b.differ = record.DifferentOptions(was.Options, back.Options); len(b.differ) == 0 {
		return nil
	}
	// A change of the validator would remove the fence.
	if b.kind.Fence == string(record.FenceValidator) && b.kind.Fenced != "" {
		for _, name := range b.differ {
			b.lacks = append(b.lacks, fmt.Sprintf("the %s of the active version, because its validator is the fence's now", name))
		}
		b.differ = nil
		return nil
	}
	b.options = back.Options
	return nil
}

// replace schedules an index to be dropped and rebuilt in the form of the active version.
func (b *backKind) replace(carry Carry, name string, now bson.Raw) {
	back, err := carry.Back(record.Shape{Indexes: []bson.Raw{now}})
	if err == nil && len(back.Indexes) != 1 {
		return
	}
	if err != nil {
		b.lacks = append(b.lacks, fmt.Sprintf("index %s as the active version has it: %v", name, err))
		return
	}
	b.drop = append(b.drop, name)
	b.add(back)
}

// add schedules indexes to be built. Their TTL indexes delete nothing until the version is active.
func (b *backKind) add(s record.Shape) {
	s, expiry := record.Unexpiring(s)
	b.build = append(b.build, s.Indexes...)
	for name, seconds := range expiry {
		if b.expiry == nil {
			b.expiry = map[string]int64{}
		}
		b.expiry[name] = seconds
	}
}

func indexNamed(indexes []bson.Raw, name string) bson.Raw {
	if i := slices.IndexFunc(indexes, func(ix bson.Raw) bool { return record.IndexName(ix) == name }); i >= 0 {
		return indexes[i]
	}
	return nil
}

// shown returns an index without its hidden option.
func shown(ix bson.Raw) bson.Raw {
	var d bson.D
	if bson.Unmarshal(ix, &d) != nil {
		return ix
	}
	raw, err := bson.Marshal(slices.DeleteFunc(d, func(e bson.E) bool { return e.Key == "hidden" }))
	if err != nil {
		return ix
	}
	return raw
}
