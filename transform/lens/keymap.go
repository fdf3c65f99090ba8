package lens

import (
	"fmt"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/keymap"
)

// KeyMap returns how names change between the two versions of the lens, for services that refer to
// its kind. It returns an error if names do not follow from each other alone, or if keys are not
// names.
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
			return transform.KeyMap{}, fmt.Errorf("%s: names do not follow from each other alone: {%s} is a field of the record", l.file, v.Name)
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
