package lens

import (
	"fmt"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// KeyMap returns the mapping of names between the two versions of the lens, for services that refer
// to its kind. It returns an error if one name does not follow from the other alone, or if keys are
// not names.
func (l *Lens) KeyMap() (transform.KeyMap, error) {
	same := func(name string) (string, error) { return name, nil }
	if l.keys == nil {
		return transform.KeyMap{New: same, Old: same}, nil
	}
	up, down := keymap.Way{Keys: l.keys, Up: true}, keymap.Way{Keys: l.keys, Up: false}
	if err := up.Named(); err != nil {
		return transform.KeyMap{}, fmt.Errorf("%s: %w", l.file, err)
	}
	for _, v := range l.keys.Variables {
		// The name alone does not determine the other name.
		if v.Field != nil {
			return transform.KeyMap{}, fmt.Errorf("%s: the name in one version does not determine the name in the other: {%s} is a field of the record", l.file, v.Name)
		}
	}
	return transform.KeyMap{New: up.Name, Old: down.Name}, nil
}

// keyMapping returns the mapping of names in one direction, or nil if they do not change.
func (l *Lens) keyMapping(up bool) keymap.Mapping {
	if l.keys == nil {
		return nil
	}
	return keymap.Way{Keys: l.keys, Up: up}
}

// KeyPatterns returns the forms of names on the old and the new side. A pattern is nil if the lens
// does not change names, or if the _ids of that side are not strings.
func (l *Lens) KeyPatterns() (from, to *Pattern) {
	if l.keys == nil {
		return nil, nil
	}
	from, _ = patternOf(l.keys.From.Pattern(), nil)
	to, _ = patternOf(l.keys.To.Pattern(), nil)
	return from, to
}

// KeepsNameOrder reports whether the names under a parent sort the same in both versions. parent is
// in the form of the old version (up) or of the new one. If true, a client can page through a list
// in name order on either side.
func (l *Lens) KeepsNameOrder(parent string, up bool) bool {
	return l.keys == nil || keymap.Way{Keys: l.keys, Up: up}.KeepsOrder(parent)
}

// UpMapping maps requests in terms of the old version to requests in terms of the new version.
//
// A mapped comparison is exact: an old record satisfies the original if and only if its new record
// satisfies the result.
//
//   - rename, move and untouched fields: any comparison.
//   - convert between types: == and in, with literals converted like values. Ordering comparisons
//     too, if both types sort the same. convert by a table: == and in.
//   - wrap and unwrap: any comparison, applied to the item.
//   - split: == of the whole becomes one == for each part. startsWith becomes == for the complete
//     parts and startsWith for the next one. join: == of the first part becomes startsWith of the
//     whole. == of all parts becomes ==; only CompareAll sees all parts.
//   - each: comparisons of "*" parts, and contains.
//   - A field without a counterpart, compute and hook: an error.
//
// A literal that the other side's field cannot have becomes a comparison without matches: in
// without values. That is exact, because a record with such a value does not exist or is parked. A
// list or object never equals a literal.
//
// Field returns all fields that are made from the requested field. For an object it includes the
// fields that moved out of it. Order accepts only fields whose order the operations preserve.
func (l *Lens) UpMapping() transform.Mapping { return operation.Mapping(l.up.Ops, l.keyMapping(true)) }

// DownMapping maps requests in terms of the new version to requests in terms of the old version. It
// is the reverse of UpMapping.
func (l *Lens) DownMapping() transform.Mapping {
	return operation.Mapping(l.down.Ops, l.keyMapping(false))
}
