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

// ErrChanged means that an application has changed a collection's shape since the last check. The
// target follows after the switch attempt is given up.
var ErrChanged = errors.New("the source has changed since the last check: the next attempt begins after the target has the change too")

// changesShown is the number of differences that an error names.
const changesShown = 3

// CheckSealed compares the shapes of both sides a last time. It runs after the fence, when the
// source's shape can no longer change under its name, so it sees every earlier change. It fails
// with ErrChanged if a TTL index of the source deletes, because the switch has stopped all of them.
// It also fails with ErrChanged if the target differs from its source. It builds no index, because
// writes are held.
//
// Missing indexes and options of a rollback's target do not fail it; RollbackLacks lists them.
func (m *Maintainer) CheckSealed(ctx context.Context, d upgradestate.Deployment) error {
	source, _ := d.Namespace(d.CurrentVersion)
	target, _ := d.Namespace(d.Upgrade.TargetVersion)
	pairs, err := m.sealedPairs(d, target)
	if err != nil {
		return err
	}
	shapes, err := m.sealedShapes(ctx, source, target, pairs)
	if err != nil {
		return err
	}
	return together(ctx, source, kindsAtOnce, func(ctx context.Context, k upgradestate.Kind) error {
		mine, sides := pairs[k.Kind], shapes[k.Kind]
		if sides == nil {
			return nil
		}
		shape, there := sides[0], sides[1:]
		expiry := record.ExpiryOf(shape)
		// The switch stopped them all, so this one was created or changed after that.
		for _, name := range slices.Sorted(maps.Keys(expiry)) {
			if expiry[name] != record.NeverExpires {
				return fmt.Errorf("TTL index %s of %s/%s deletes after %d s, but the switch stops all TTL indexes: somebody has created or changed it meanwhile: %w",
					name, source.Version, k.Kind, expiry[name], ErrChanged)
			}
		}
		// Compare with the noted expiry: the source's own indexes are stopped now.
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

// sealedShapes describes, by source kind, that kind and the target kinds of its pairs, in this
// order. It leaves out kinds with nothing to compare. It looks at both sides, behind the fence: a
// remembered shape would not show what others have done to a target since. All looks run at the
// same time, because writes are held, and the store then needs one command for all collections and
// one for the indexes of each. The driver looks for index builds meanwhile and shares the latter.
func (m *Maintainer) sealedShapes(ctx context.Context, source, target upgradestate.Namespace, pairs map[string][]sealedPair) (map[string][]record.Shape, error) {
	shapes := map[string][]record.Shape{}
	g, looking := errgroup.WithContext(ctx)
	g.SetLimit(describedAtOnce)
	for _, k := range source.Kinds {
		mine := pairs[k.Kind]
		if len(k.Expiry) == 0 && len(mine) == 0 {
			continue
		}
		sides := make([]record.Shape, 1+len(mine))
		shapes[k.Kind] = sides
		g.Go(func() (err error) { sides[0], err = m.sealedShape(looking, source.Version, k); return err })
		for i, p := range mine {
			g.Go(func() (err error) { sides[1+i], err = m.sealedShape(looking, target.Version, p.kind); return err })
		}
	}
	return shapes, g.Wait()
}

func (m *Maintainer) sealedShape(ctx context.Context, version string, k upgradestate.Kind) (record.Shape, error) {
	info, err := m.describePlace(ctx, version, k)
	var refused *record.UnsupportedError
	// Any other error leaves the shape unknown. The caller must not take it for a change.
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, record.ErrNotFound) {
		return info.Shape, fmt.Errorf("indexes and options of %s/%s: %w: %w", version, k.Kind, ErrUnanswered, err)
	}
	return info.Shape, err
}

// sealedPair is a target kind and the Carry that connects it with a source kind.
type sealedPair struct {
	kind  upgradestate.Kind // target kind
	carry Carry             // from the older version to the newer one
	back  bool              // the target is the older version
}

// sealedPairs returns the pairs of a switch, by source kind. A target that follows its source is
// the newer one, even if the latest switch was the rollback from it.
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
	// In a rollback the Carry leads from the target to the source.
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

// goesBack reports whether a switch to a version is the rollback of the latest switch.
func (m *Maintainer) goesBack(d upgradestate.Deployment, version string) bool {
	last := d.LastSwitch
	return last != nil && last.From == version && last.To == d.CurrentVersion
}

// sameShape fails with ErrChanged if a following target differs from the shape that its source
// requires.
func (m *Maintainer) sameShape(ctx context.Context, version string, p sealedPair, source, there record.Shape) error {
	// A rollback does not wait for the shape of its target.
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

// sameForms asks the database whether differently listed indexes are equal for it, as before the
// switch. Nothing is built, because all of them exist.
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

// sameExpiry compares the noted expiry of the target's TTL indexes with the source's TTL indexes.
func (p sealedPair) sameExpiry(version string, source, there record.Shape) error {
	changed := func(index string, does, noted any) error {
		return fmt.Errorf("TTL index %s of %s/%s would delete after %v s, but the index of the source after %v s: %w", index, version, p.kind.Kind, noted, does, ErrChanged)
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
		// Without this, the flip would change the expiry.
		case still && expires && now != noted, still && !expires && now != record.NeverExpires:
			return changed(index, now, noted)
		}
		delete(made, index)
	}
	// The remaining ones have no note, so they would never delete after the flip.
	for index, seconds := range made {
		if seconds != record.NeverExpires {
			return changed(index, seconds, "no")
		}
	}
	return nil
}
