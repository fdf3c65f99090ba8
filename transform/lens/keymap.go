package lens

import (
	"fmt"

	"dbcontroller.dev/transform"
)

// KeyMap returns how names change between the two versions of the lens, for services that refer to
// its kind. It returns an error if names do not follow from each other alone, or if keys are not
// names.
func (l *Lens) KeyMap() (transform.KeyMap, error) {
	same := func(name string) (string, error) { return name, nil }
	if l.keys == nil {
		return transform.KeyMap{New: same, Old: same}, nil
	}
	up, down := keyWay{l.keys, true}, keyWay{l.keys, false}
	if err := up.named(); err != nil {
		return transform.KeyMap{}, fmt.Errorf("%s: %w", l.file, err)
	}
	for _, v := range l.keys.variables {
		// The name alone does not determine the other name.
		if v.field != nil {
			return transform.KeyMap{}, fmt.Errorf("%s: names do not follow from each other alone: {%s} is a field of the record", l.file, v.name)
		}
	}
	return transform.KeyMap{New: up.Name, Old: down.Name}, nil
}
