package collections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// ErrChanged means that an application has changed a TTL index since the target was looked at. The
// target follows it once the attempt is given up.
var ErrChanged = errors.New("the target follows it before the next attempt")

// CheckStopped fails if an index that was stopped before the switch deletes again, and with
// ErrChanged if a TTL index of the target would delete otherwise than that of the source. It is
// called behind the fence: what an application changes before that is seen.
func (m *Maintainer) CheckStopped(ctx context.Context, d upgradestate.Deployment) error {
	source, _ := d.Namespace(d.CurrentVersion)
	target, _ := d.Namespace(d.Upgrade.TargetVersion)
	pairs, err := m.expiryPairs(d, target)
	if err != nil {
		return err
	}
	return together(ctx, source, func(ctx context.Context, k upgradestate.Kind) error {
		mine := pairs[k.Kind]
		if len(k.Expiry) == 0 && len(mine) == 0 {
			return nil
		}
		shape, err := m.sealedShape(ctx, source.Version, k)
		if err != nil {
			return err
		}
		expiry := record.ExpiryOf(shape)
		for _, name := range slices.Sorted(maps.Keys(expiry)) {
			if expiry[name] != record.NeverExpires {
				return fmt.Errorf("TTL index %s of %s/%s deletes after %d s although the switch stopped it: somebody has changed it meanwhile", name, source.Version, k.Kind, expiry[name])
			}
		}
		shape = record.WithExpiry(shape, stopped(shape, k.Expiry))
		for _, p := range mine {
			if err := m.sameExpiry(ctx, target.Version, p, shape); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *Maintainer) sealedShape(ctx context.Context, version string, k upgradestate.Kind) (record.Shape, error) {
	info, err := m.describePlace(ctx, version, k)
	var refused *record.UnsupportedError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, record.ErrNotFound) {
		return info.Shape, fmt.Errorf("TTL indexes of %s/%s: %w: %w", version, k.Kind, ErrUnanswered, err)
	}
	return info.Shape, err
}

// expiryPair is a kind of the target with TTL indexes that come from, or lead to, a kind of the source.
type expiryPair struct {
	kind  upgradestate.Kind // of the target
	carry Carry             // from the older one of the two to the newer one
	back  bool              // the target is the older one
}

// expiryPairs are those whose target has notes of TTL indexes, by kind of the source.
func (m *Maintainer) expiryPairs(d upgradestate.Deployment, target upgradestate.Namespace) (map[string][]expiryPair, error) {
	out := map[string][]expiryPair{}
	back := m.goesBack(d, target.Version)
	older, newer := d.CurrentVersion, target.Version
	if back {
		older, newer = newer, older
	}
	dir, err := m.Registry.Direction(older, newer)
	if errors.Is(err, transform.ErrNoDirection) || d.Upgrade.Snapshot {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for name, carry := range m.Carry.along(dir) {
		source, kind := carry.From, name
		if back {
			source, kind = kind, source
		}
		if k, ok := target.Kind(kind); ok && source != "" && (len(k.Expiry) > 0 || !back) {
			out[source] = append(out[source], expiryPair{kind: k, carry: carry, back: back})
		}
	}
	return out, nil
}

// goesBack reports whether a switch to a version is the rollback of the latest one.
func (m *Maintainer) goesBack(d upgradestate.Deployment, version string) bool {
	last := d.LastSwitch
	return last != nil && last.From == version && last.To == d.CurrentVersion
}

// sameExpiry compares what the target's TTL indexes are noted to do after the flip with what those
// of the source do.
func (m *Maintainer) sameExpiry(ctx context.Context, version string, p expiryPair, source record.Shape) error {
	changed := func(index string, does, noted any) error {
		return fmt.Errorf("TTL index %s of %s/%s would delete after %v s, and that of the source after %v s: %w", index, version, p.kind.Kind, noted, does, ErrChanged)
	}
	does := record.ExpiryOf(source)
	if p.back {
		shape, err := m.sealedShape(ctx, version, p.kind)
		if err != nil {
			return err
		}
		for _, spec := range shape.Indexes {
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
	declared, err := p.carry.Shape(record.Shape{})
	if err != nil {
		return fmt.Errorf("declared indexes of %s/%s: %w", version, p.kind.Kind, err)
	}
	own := func(index string) bool {
		return slices.ContainsFunc(declared.Indexes, func(ix bson.Raw) bool { return record.IndexName(ix) == index })
	}
	for _, index := range p.kind.Carried {
		noted, expires := p.kind.Expiry[index]
		now, still := made[index]
		switch {
		case own(index) || !expires && !still:
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
