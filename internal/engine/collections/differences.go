package collections

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Differences compares the collections of a version that follows the current one with their
// required indexes and options. It changes nothing. Each text names the collection. differ lists
// differences that are being corrected or that block the switch. lacks lists the differences that
// a rollback to the version would meet.
func (m *Maintainer) Differences(ctx context.Context, d upgradestate.Deployment, to string) (differ, lacks []string, err error) {
	if m.goesBack(d, to) {
		kinds, err := m.backKinds(ctx, d)
		if err != nil {
			return nil, nil, err
		}
		for _, k := range kinds {
			for _, text := range k.behind() {
				differ = append(differ, k.line(text))
			}
			for _, text := range k.lacks {
				lacks = append(lacks, k.line(text))
			}
		}
	}
	dir, err := m.Registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return nil, nil, err
	}
	kinds, err := m.Indexed(ctx, d, dir)
	if err != nil {
		return nil, nil, err
	}
	ns, _ := d.Namespace(to)
	for _, k := range kinds {
		at, _ := ns.Kind(k.Spec.Name)
		info, err := m.describePlace(ctx, to, at)
		var unsupported *record.UnsupportedError
		texts := []string{}
		switch {
		// The collection has options that cannot be synced. That is a difference, not a failure.
		case errors.As(err, &unsupported):
			texts = append(texts, unsupported.Reason)
		case err != nil:
			return nil, nil, err
		default:
			texts = k.differences(info.Shape, at.Expiry)
		}
		for _, text := range texts {
			differ = append(differ, fmt.Sprintf("%s (collection %s of %s): %s", at.Kind, at.Physical, to, text))
		}
	}
	return differ, lacks, nil
}

// differs reports whether an index of the target differs from its source's. It ignores declared
// indexes, because only the database knows their defaults.
func (k Indexed) differs(have, want bson.Raw) bool {
	return k.Follows && !slices.Contains(k.Declared, record.IndexName(want)) && record.DifferentIndex(have, want) != ""
}

// differences describes how a target's collection differs from its required shape. noted holds the
// noted expiry of its TTL indexes.
func (k Indexed) differences(there record.Shape, noted map[string]int64) (texts []string) {
	for _, want := range k.Spec.Shape.Indexes {
		name := record.IndexName(want)
		have := indexNamed(there.Indexes, name)
		if have == nil {
			texts = append(texts, fmt.Sprintf("index %s is missing", name))
			continue
		}
		if k.differs(have, want) {
			texts = append(texts, fmt.Sprintf("index %s differs: %s", name, record.DifferentIndex(have, want)))
		}
		// The index itself is stopped, so only its note can be compared.
		seconds, expires := k.Expiry[name]
		if has, ok := noted[name]; expires && seconds != record.NeverExpires && (!ok || has != seconds) {
			texts = append(texts, fmt.Sprintf("the recorded expiry of TTL index %s is not the %d s of the source", name, seconds))
		}
	}
	if k.Follows {
		for _, name := range k.outdated(there) {
			texts = append(texts, fmt.Sprintf("index %s no longer exists in the source", name))
		}
		for _, name := range record.DifferentOptions(there.Options, k.Spec.Shape.Options) {
			texts = append(texts, fmt.Sprintf("its %s differs from the source", name))
		}
	}
	// A TTL index must not delete in a target: the source would still have the records.
	for name, seconds := range record.ExpiryOf(there) {
		if seconds != record.NeverExpires {
			texts = append(texts, fmt.Sprintf("TTL index %s deletes after %d s already", name, seconds))
		}
	}
	slices.Sort(texts)
	return texts
}
