package apiversion

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Difference declares once how fields correspond whose path, type or meaning is not the
// same in both versions; values, paths, filters, orders and masks follow from it. Paths
// are dotted and lead through messages, not into lists or maps. Values are those of
// transform.Condition.
type Difference struct {
	old, new []string
	up, down func([]any) ([]any, error) // nil: the same value
	ordered  bool
	value    any // of a field that one version alone has
	names    *Names
}

// Renamed is a field that has another path in the new version, and the same type.
func Renamed(old, new string) Difference {
	return Difference{old: []string{old}, new: []string{new}, ordered: true}
}

// Converted is a field whose values differ. down(up(x)) must be x; an x for which it is
// not is refused. Zero values of fields without presence correspond to each other, the
// functions are not asked.
func Converted(old, new string, up, down func(any) (any, error)) Difference {
	one := func(f func(any) (any, error)) func([]any) ([]any, error) {
		return func(v []any) ([]any, error) {
			x, err := f(v[0])
			return []any{x}, err
		}
	}
	return Difference{old: []string{old}, new: []string{new}, up: one(up), down: one(down)}
}

// Ordered says of a converted field that its values sort the same in both versions, and
// that none sorts before one that is not set: a number that becomes a time is not below 0.
func (d Difference) Ordered() Difference {
	d.ordered = true
	return d
}

// Split is a field that has become several.
func Split(old string, new []string, up func(any) ([]any, error), down func([]any) (any, error)) Difference {
	return Difference{
		old: []string{old}, new: slices.Clone(new),
		up: func(v []any) ([]any, error) { return up(v[0]) },
		down: func(v []any) ([]any, error) {
			x, err := down(v)
			return []any{x}, err
		},
	}
}

// Joined is several fields that have become one. They can be compared, and changed by an
// update mask, only together.
func Joined(old []string, new string, up func([]any) (any, error), down func(any) ([]any, error)) Difference {
	return Split(new, old, down, up).reverse()
}

// OnlyOld is a field that the new version does not have. It is shown with the value (nil:
// not set); NewHandler refuses a request that wants to give it another one.
func OnlyOld(path string, value any) Difference {
	return Difference{old: []string{path}, value: value}
}

// OnlyNew is a field that the old version does not have. It keeps what exists, and is
// made with the value (nil: not set).
func OnlyNew(path string, value any) Difference {
	return Difference{new: []string{path}, value: value}
}

// Names declares how the names of records, and their beginnings, correspond.
type Names struct {
	Up, Down             func(name string) (string, error)
	ParentUp, ParentDown func(parent string) (string, error)
}

// Rekeyed declares that records have other names in the new version.
func Rekeyed(n Names) Difference { return Difference{names: &n} }

func (d Difference) reverse() Difference {
	d.old, d.new, d.up, d.down = d.new, d.old, d.down, d.up
	if d.names != nil {
		n := *d.names
		n.Up, n.Down, n.ParentUp, n.ParentDown = n.Down, n.Up, n.ParentDown, n.ParentUp
		d.names = &n
	}
	return d
}

// Declare makes a resource of the differences between its messages. It fails if a field
// of either has no counterpart and no difference explains why.
func Declare(old, new protoreflect.MessageDescriptor, differences ...Difference) (*Resource, error) {
	up, err := newRules(old, new, differences)
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", old.FullName(), err)
	}
	reversed := make([]Difference, len(differences))
	for i, d := range differences {
		reversed[i] = d.reverse()
	}
	down, err := newRules(new, old, reversed)
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", new.FullName(), err)
	}
	r := &Resource{Old: old, New: new, Up: up.convert, Down: down.convert, UpMapping: up, DownMapping: down, SameNames: up.names == nil}
	return r.checked()
}
