package collections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// ErrChanged means that an application has changed the shape of a collection since the target was
// looked at. The target follows it once the attempt is given up.
var ErrChanged = errors.New("the source has changed since the last look: the next attempt begins once the target has followed")

// changesShown is how many differences of a collection the reason of an attempt names.
const changesShown = 3

// CheckSealed compares the shapes of both sides once more. It is called behind the fence, where the
// source's shape can no longer change through its name: what an application changes up to there is
// seen. It fails with ErrChanged if a TTL index of the source deletes, which the switch has stopped, and
// if the target is not as its source is now. No index is built here, while writes are held.
//
// Indexes and options that the target of a rollback lacks hold up nothing: RollbackLacks names them.
func (m *Maintainer) CheckSealed(ctx context.Context, d upgradestate.Deployment) error {
	source, _ := d.Namespace(d.CurrentVersion)
	target, _ := d.Namespace(d.Upgrade.TargetVersion)
	pairs, err := m.sealedPairs(d, target)
	if err != nil {
		return err
	}
	return together(ctx, source, func(ctx context.Context, k upgradestate.Kind) error {
		mine := pairs[k.Kind]
		if len(k.Expiry) == 0 && len(mine) == 0 {
			return nil
		}
		shape, there, err := m.sealedShapes(ctx, source.Version, k, target.Version, mine)
		if err != nil {
			return err
		}
		expiry := record.ExpiryOf(shape)
		for _, name := range slices.Sorted(maps.Keys(expiry)) {
			if expiry[name] != record.NeverExpires {
				return fmt.Errorf("TTL index %s of %s/%s deletes after %d s, and the switch stops all of them: somebody has made or changed it meanwhile: %w",
					name, source.Version, k.Kind, expiry[name], ErrChanged)
			}
		}
		shape = record.WithExpiry(shape, stopped(shape, k.Expiry))
		for i, p := range mine {
			if err := p.sameExpiry(target.Version, shape, there[i]); err != nil {
				return err
			}
			if err := m.sameShape(ctx, target.Version, p, shape, there[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// sealedShapes describes a kind of the source and, at the same time, those of the target that come
// from it: writes are held, so that neither waits for the other.
func (m *Maintainer) sealedShapes(ctx context.Context, version string, k upgradestate.Kind, to string, pairs []sealedPair) (shape record.Shape, there []record.Shape, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { shape, err = m.sealedShape(ctx, version, k); return err })
	there = make([]record.Shape, len(pairs))
	for i, p := range pairs {
		g.Go(func() (err error) { there[i], err = m.sealedShape(ctx, to, p.kind); return err })
	}
	err = g.Wait()
	return shape, there, err
}

func (m *Maintainer) sealedShape(ctx context.Context, version string, k upgradestate.Kind) (record.Shape, error) {
	info, err := m.describePlace(ctx, version, k)
	var refused *record.UnsupportedError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, record.ErrNotFound) {
		return info.Shape, fmt.Errorf("indexes and options of %s/%s: %w: %w", version, k.Kind, ErrUnanswered, err)
	}
	return info.Shape, err
}

// sealedPair is a kind of the target whose shape comes from, or leads to, that of a kind of the source.
type sealedPair struct {
	kind  upgradestate.Kind // of the target
	carry Carry             // from the older one of the two to the newer one
	back  bool              // the target is the older one, and has notes of TTL indexes
}

// sealedPairs are those of a switch, by kind of the source. A target that follows its source is the
// newer one, also where the latest switch was the rollback from it.
func (m *Maintainer) sealedPairs(d upgradestate.Deployment, target upgradestate.Namespace) (map[string][]sealedPair, error) {
	if d.Upgrade.Snapshot {
		return nil, nil
	}
	dir, err := m.Registry.Direction(d.CurrentVersion, target.Version)
	if errors.Is(err, transform.ErrNoDirection) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	carries := m.following(d, dir)
	back := len(carries) == 0 && m.goesBack(d, target.Version)
	if back {
		if dir, err = m.Registry.Direction(target.Version, d.CurrentVersion); err != nil {
			return nil, err
		}
		carries = m.Carry.along(dir)
	}
	out := map[string][]sealedPair{}
	for name, carry := range carries {
		source, kind := carry.From, name
		if back {
			source, kind = kind, source
		}
		if k, ok := target.Kind(kind); ok && source != "" && (len(k.Expiry) > 0 || !back) {
			out[source] = append(out[source], sealedPair{kind: k, carry: carry, back: back})
		}
	}
	return out, nil
}

// goesBack reports whether a switch to a version is the rollback of the latest one.
func (m *Maintainer) goesBack(d upgradestate.Deployment, version string) bool {
	last := d.LastSwitch
	return last != nil && last.From == version && last.To == d.CurrentVersion
}

// sameShape fails with ErrChanged where a target that follows its source is not as that makes it now.
func (m *Maintainer) sameShape(ctx context.Context, version string, p sealedPair, source, there record.Shape) error {
	if p.back {
		return nil
	}
	want, err := p.carry.Shape(withoutShardKey(source))
	if err != nil {
		return fmt.Errorf("carry options and indexes to %s/%s: %w: %w", version, p.kind.Kind, err, ErrChanged)
	}
	k := Indexed{Token: syncer.TokenOf(p.kind), Follows: true, Carried: p.kind.Carried}
	k.Spec = record.KindSpec{Name: p.kind.Kind, Fixed: p.kind.Fixed}
	k.Spec.Shape, k.Expiry = record.Unexpiring(want)
	if k.Declared, err = p.carry.declared(); err != nil {
		return err
	}
	if err := m.sameForms(ctx, version, &k, there); err != nil {
		return err
	}
	if texts := k.differences(there, p.kind.Expiry); len(texts) > 0 {
		texts = texts[:min(changesShown, len(texts))]
		return fmt.Errorf("%s (collection %s of %s): %s: %w", p.kind.Kind, p.kind.Physical, version, strings.Join(texts, ", "), ErrChanged)
	}
	return nil
}

// sameForms asks the database whether indexes that are listed differently are the same to it, as
// they were for the look before the switch. Nothing is built: all of them are there.
func (m *Maintainer) sameForms(ctx context.Context, version string, k *Indexed, there record.Shape) error {
	for _, want := range k.Spec.Shape.Indexes {
		name := record.IndexName(want)
		have := indexNamed(there.Indexes, name)
		if have == nil || !k.differs(have, want) {
			continue
		}
		one := k.Spec
		one.Shape = record.Shape{Indexes: []bson.Raw{want}}
		switch err := m.Database(version).BuildIndexes(ctx, k.Token, one); {
		case err == nil:
			k.Declared = append(k.Declared, name)
		case !errors.Is(err, record.ErrConflict):
			return fmt.Errorf("index %s of %s/%s: %w: %w", name, version, k.Spec.Name, ErrUnanswered, err)
		}
	}
	return nil
}

// sameExpiry compares what the target's TTL indexes are noted to do after the flip with what those
// of the source do.
func (p sealedPair) sameExpiry(version string, source, there record.Shape) error {
	changed := func(index string, does, noted any) error {
		return fmt.Errorf("TTL index %s of %s/%s would delete after %v s, and that of the source after %v s: %w", index, version, p.kind.Kind, noted, does, ErrChanged)
	}
	does := record.ExpiryOf(source)
	if p.back {
		for _, spec := range there.Indexes {
			index := record.IndexName(spec)
			noted, expires := p.kind.Expiry[index]
			made, ok := p.carry.makes(spec)
			if !expires || !ok {
				continue
			}
			now, still := does[made]
			if !still {
				now = record.NeverExpires
			}
			if now != noted {
				return changed(index, now, noted)
			}
		}
		return nil
	}
	made := map[string]int64{}
	for _, spec := range source.Indexes {
		if seconds, expires := does[record.IndexName(spec)]; expires {
			if index, ok := p.carry.makes(spec); ok {
				made[index] = seconds
			}
		}
	}
	own, err := p.carry.declared()
	if err != nil {
		return fmt.Errorf("indexes of %s/%s: %w", version, p.kind.Kind, err)
	}
	for _, index := range p.kind.Carried {
		noted, expires := p.kind.Expiry[index]
		now, still := made[index]
		switch {
		case slices.Contains(own, index) || !expires && !still:
		case !still && noted != record.NeverExpires:
			return changed(index, "no", noted)
		case still && expires && now != noted, still && !expires && now != record.NeverExpires:
			return changed(index, now, noted)
		}
		delete(made, index)
	}
	for index, seconds := range made {
		if seconds != record.NeverExpires {
			return changed(index, seconds, "no")
		}
	}
	return nil
}
