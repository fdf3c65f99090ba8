package collections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// A target follows the shape of its source. A carried index is noted in the record before it is
// built, so that a later controller knows that it may drop it. Indexes that others create on the
// target stay.

// names returns the names of indexes.
func names(indexes []bson.Raw) []string {
	var out []string
	for _, ix := range indexes {
		out = append(out, record.IndexName(ix))
	}
	return out
}

// outdated returns the carried indexes of a target that its source no longer has.
func (k Indexed) outdated(there record.Shape) []string {
	wanted := names(k.Spec.Shape.Indexes)
	return slices.DeleteFunc(names(there.Indexes), func(name string) bool {
		return slices.Contains(wanted, name) || !slices.Contains(k.Carried, name)
	})
}

// reshape drops indexes that the source no longer has, and changes options that it has changed. If
// changed is true, the caller must describe the target again.
func (m *Maintainer) reshape(ctx context.Context, to string, k Indexed, there record.Shape) (changed bool, err error) {
	if !k.Follows {
		return false, nil
	}
	outdated, options := k.outdated(there), record.DifferentOptions(there.Options, k.Spec.Shape.Options)
	if len(outdated) > 0 || len(options) > 0 {
		if err := m.Database(to).Reshape(ctx, k.Token, k.Spec, outdated); err != nil {
			return false, fmt.Errorf("follow the indexes and options of the source in %s/%s: %w", to, k.Spec.Name, err)
		}
		m.Log.Info("changed indexes and options to match the source", zap.String("kind", k.Spec.Name), zap.String("version", to),
			zap.Strings("dropped", outdated), zap.Strings("options", options))
	}
	return len(outdated) > 0 || len(options) > 0, m.noteCarried(ctx, to, k)
}

// noteCarried notes the indexes that are about to be built, and removes notes of indexes that the
// source no longer has. An index may be noted but never built, if the source dropped it during the
// copy. A leftover note of a TTL index would look as if it still had to delete in the target.
func (m *Maintainer) noteCarried(ctx context.Context, version string, k Indexed) error {
	wanted := names(k.Spec.Shape.Indexes)
	dropped := slices.DeleteFunc(slices.Clone(k.Carried), func(name string) bool { return slices.Contains(wanted, name) })
	built := slices.DeleteFunc(names(k.Spec.Shape.Indexes), func(name string) bool { return slices.Contains(k.Carried, name) })
	if len(built) == 0 && len(dropped) == 0 {
		return nil
	}
	_, err := m.Deployments.Apply(ctx, upgradestate.AnnounceIndexes{Version: version, Kind: k.Spec.Name, Built: built, Dropped: dropped})
	if err != nil {
		return fmt.Errorf("record indexes of %s/%s: %w", version, k.Spec.Name, err)
	}
	return nil
}

// build builds the indexes of a target. If the source has changed a carried index, build drops the
// outdated one, and returns in lacks that it will be rebuilt.
func (m *Maintainer) build(ctx context.Context, to string, k Indexed, spec record.KindSpec, nearSwitch bool) (lacks string, err error) {
	err = m.Database(to).BuildIndexes(ctx, k.Token, spec)
	var conflict *record.IndexConflict
	// Only a carried index may be dropped: any other one belongs to an application.
	if err == nil || !k.Follows || !errors.As(err, &conflict) || !slices.Contains(k.Carried, conflict.Index) {
		return "", err
	}
	lacks = fmt.Sprintf("index %s of %s, which the source has changed: it is rebuilt", conflict.Index, k.Spec.Name)
	if nearSwitch {
		return lacks, nil // first, the shards must withdraw their reports
	}
	m.Log.Info("rebuilding an index that the source has changed", zap.String("kind", k.Spec.Name), zap.String("version", to), zap.String("index", conflict.Index))
	return lacks, m.Database(to).Reshape(ctx, k.Token, k.Spec, []string{conflict.Index})
}

// unlike describes how a target differs from its source, or returns "".
func (k Indexed) unlike(there record.Shape) string {
	if !k.Follows {
		return ""
	}
	if outdated := k.outdated(there); len(outdated) > 0 {
		return fmt.Sprintf("index %s of %s, which the source no longer has: it is dropped before the switch begins", strings.Join(outdated, ", "), k.Spec.Name)
	}
	if options := record.DifferentOptions(there.Options, k.Spec.Shape.Options); len(options) > 0 {
		return fmt.Sprintf("the %s of the source in %s: it is changed before the switch begins", strings.Join(options, " and "), k.Spec.Name)
	}
	return ""
}

// followExpiry updates the notes of the previous version, so that its TTL indexes get the present
// expiry of their counterparts after a rollback. An application that drops a TTL index in the new
// version wants to keep its records. Those records were synced to the old version, too.
func (m *Maintainer) followExpiry(ctx context.Context, d upgradestate.Deployment, left upgradestate.Namespace) error {
	if !m.goesBack(d, left.Version) || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return nil
	}
	dir, err := m.Registry.Direction(left.Version, d.CurrentVersion)
	if errors.Is(err, transform.ErrNoDirection) {
		return nil
	}
	if err != nil {
		return err
	}
	active, _ := d.Namespace(d.CurrentVersion)
	for name, carry := range m.Carry.along(dir) {
		old, known := left.Kind(carry.From)
		now, there := active.Kind(name)
		if !known || !there || len(old.Expiry) == 0 || now.Pending != nil {
			continue
		}
		was, err := m.describePlace(ctx, left.Version, old)
		if err != nil {
			return err
		}
		is, err := m.describePlace(ctx, d.CurrentVersion, now)
		if err != nil {
			return err
		}
		if stops(is.Shape) { // the note may be newer than d
			latest, err := m.Deployments.Get(ctx)
			if err != nil {
				return err
			}
			active, _ = latest.Namespace(active.Version)
			now, _ = active.Kind(name)
		}
		// Near a switch, TTL indexes are stopped. The notes have their expiry.
		running := record.ExpiryOf(record.WithExpiry(is.Shape, stopped(is.Shape, now.Expiry)))
		note := map[string]int64{}
		for _, spec := range was.Shape.Indexes {
			index := record.IndexName(spec)
			had, expires := old.Expiry[index]
			// An index with no counterpart keeps its note.
			made, ok := carry.makes(spec)
			if !expires || !ok {
				continue
			}
			does, still := running[made]
			// The counterpart was dropped, so the old index must not delete either.
			if !still {
				does = record.NeverExpires
			}
			if does != had {
				note[index] = does
			}
		}
		if len(note) == 0 {
			continue
		}
		if _, err := m.Deployments.Apply(ctx, upgradestate.AnnounceExpiry{Version: left.Version, Kind: old.Kind, Expiry: note, Noted: old.Expiry}); err != nil {
			return fmt.Errorf("record TTL indexes of %s/%s: %w", left.Version, old.Kind, err)
		}
		m.Log.Info("changed TTL indexes of the former version to match the active one", zap.String("kind", old.Kind), zap.Any("seconds", note))
	}
	return nil
}

// makes returns the name of the index that derives from an index of the source. ok is false if none
// does, for instance if the new version declares its indexes.
func (c Carry) makes(spec bson.Raw) (name string, ok bool) {
	made, ok := c.made(spec)
	return record.IndexName(made), ok
}

// made is like makes, but returns the index.
func (c Carry) made(spec bson.Raw) (made bson.Raw, ok bool) {
	// Shape has no per-index form. Compare its results with and without the index.
	with, err := c.Shape(record.Shape{Indexes: []bson.Raw{spec}})
	if err != nil {
		return nil, false
	}
	without, err := c.Shape(record.Shape{})
	if err != nil || len(with.Indexes) != len(without.Indexes)+1 {
		return nil, false
	}
	return with.Indexes[len(with.Indexes)-1], true
}
