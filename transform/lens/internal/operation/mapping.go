package operation

import (
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
)

// requestMapping maps requests by the operations of one direction.
type requestMapping struct {
	ops  []Op
	keys keymap.Mapping // nil if the key does not change
}

// Mapping returns the mapping of requests by the operations of one direction. keys maps names; nil
// means that names do not change.
func Mapping(ops []Op, keys keymap.Mapping) transform.Mapping { return &requestMapping{ops, keys} }

// Condition is a transform.Condition whose path is split into its parts.
type Condition struct {
	Path   edit.Path
	Op     transform.Operator
	Values []any
}

// Comparer is an Op that maps comparisons of fields whose values it changes. Compare returns a
// conjunction of comparisons of the far side. If there is none with exactly the same records, it
// returns an error with the reason.
type Comparer interface {
	Compare(c Condition) ([]Condition, error)
}

// conjunctionComparer is an op that maps some comparisons only together.
type conjunctionComparer interface {
	compareAll(cs []Condition) ([]Condition, error)
}

// spreader is an op that computes the counterparts of a field itself.
type spreader interface {
	fieldsOf(p edit.Path) ([]edit.Path, error)
}

// sorter is an op that may keep the order of values that it changes.
type sorter interface{ KeepsOrder() bool }

var (
	_ transform.Mapping            = (*requestMapping)(nil)
	_ transform.ConjunctionMapping = (*requestMapping)(nil)
	_ transform.OrderedMapping     = (*requestMapping)(nil)
	_ transform.CarryingMapping    = (*requestMapping)(nil)
)

// Name maps the name of a record.
func (m *requestMapping) Name(name string) (string, error) {
	if m.keys == nil {
		return name, nil
	}
	return m.keys.Name(name)
}

// Parent maps a prefix of names.
func (m *requestMapping) Parent(parent string) (string, error) {
	if m.keys == nil {
		return parent, nil
	}
	return m.keys.Parent(parent)
}

// KeepsOrder reports whether the names under a parent sort the same on both sides. They do if both
// patterns have the same variables in the same order after the part that the parent fixes.
func (m *requestMapping) KeepsOrder(parent string) bool {
	k, ok := m.keys.(keymap.Way)
	return m.keys == nil || ok && k.KeepsOrder(parent)
}

// Field maps the path of a field, for a mask.
func (m *requestMapping) Field(dotted string) ([]string, error) {
	p, err := m.requestPath(dotted)
	if err != nil {
		return nil, err
	}
	ps := []edit.Path{p}
	for _, o := range m.ops {
		var next []edit.Path
		for _, p := range ps {
			// One field may become several, and each of them several more.
			far, err := fieldsAfter(o, p)
			if err != nil {
				return nil, &transform.MappingError{Field: dotted, Reason: err.Error()}
			}
			next = append(next, far...)
		}
		ps = next
	}
	var out []string
	for i, p := range ps {
		// Skip duplicates and fields within another field of the result.
		if !slices.ContainsFunc(ps[:i], p.Equal) && !slices.ContainsFunc(ps, func(q edit.Path) bool { return len(q) < len(p) && p.Under(q) }) {
			out = append(out, p.String())
		}
	}
	return out, nil
}

func fieldsAfter(o Op, p edit.Path) ([]edit.Path, error) {
	if err := namedEntry(o, p); err != nil {
		return nil, err
	}
	if s, ok := o.(spreader); ok {
		return s.fieldsOf(p)
	}
	next, f := o.Trace(p)
	if f == kept || f == Converted || f == Covers {
		return []edit.Path{next}, nil
	}
	return nil, f.reason(o)
}

// Compare maps one comparison.
func (m *requestMapping) Compare(c transform.Condition) ([]transform.Condition, error) {
	return m.CompareAll([]transform.Condition{c})
}

// CompareAll maps a conjunction as a whole.
func (m *requestMapping) CompareAll(all []transform.Condition) ([]transform.Condition, error) {
	cs := make([]Condition, len(all))
	for i, c := range all {
		p, err := m.requestPath(c.Path)
		if err != nil {
			return nil, err
		}
		cs[i] = Condition{p, c.Op, c.Values}
	}
	for _, o := range m.ops {
		next, err := compareAll(o, cs)
		if err != nil {
			// With several comparisons the failing one is unknown here, so the error names the
			// operation.
			field := all[0].Path
			if len(all) > 1 {
				field = o.String()
			}
			return nil, &transform.MappingError{Field: field, Reason: err.Error()}
		}
		cs = next
	}
	out := make([]transform.Condition, len(cs))
	for i, c := range cs {
		out[i] = transform.Condition{Path: c.Path.String(), Op: c.Op, Values: c.Values}
	}
	return out, nil
}

func compareAll(o Op, cs []Condition) ([]Condition, error) {
	if j, ok := o.(conjunctionComparer); ok {
		for _, c := range cs {
			if err := namedEntry(o, c.Path); err != nil {
				return nil, err
			}
		}
		return j.compareAll(cs)
	}
	var out []Condition
	for _, c := range cs {
		next, err := compareOne(o, c)
		if err != nil {
			return nil, err
		}
		out = append(out, next...)
	}
	return out, nil
}

// compareOne maps one comparison: unchanged if its value stays the same, else as the operation
// defines.
func compareOne(o Op, c Condition) ([]Condition, error) {
	if err := namedEntry(o, c.Path); err != nil {
		return nil, err
	}
	if j, ok := o.(conjunctionComparer); ok {
		return j.compareAll([]Condition{c})
	}
	if k, ok := o.(Comparer); ok {
		return k.Compare(c)
	}
	// Without special rules, a comparison survives only if its values do.
	next, f := o.Trace(c.Path)
	if f != kept {
		return nil, f.reason(o)
	}
	c.Path = next
	return []Condition{c}, nil
}

// namedEntry refuses a path to any entry of a map if an operation changes one entry by name.
func namedEntry(o Op, p edit.Path) error {
	at := p.ItemAt()
	if at < 0 {
		return nil
	}
	for _, q := range PathsOf(o) {
		// The operation changes one entry, so "*" means two different things.
		if len(q) > at && q[:at].Equal(p[:at]) {
			return fmt.Errorf("it means any entry, and %s is another entry in the other version (%s)", q, o)
		}
	}
	return nil
}

// Order maps a field to sort by.
func (m *requestMapping) Order(dotted string) (string, error) {
	p, err := m.requestPath(dotted)
	if err != nil {
		return "", err
	}
	// A list has no single value to sort by.
	if p.ItemAt() >= 0 {
		return "", &transform.MappingError{Field: dotted, Reason: "records cannot be sorted by any item of a list or map"}
	}
	for _, o := range m.ops {
		next, f := o.Trace(p)
		s, ok := o.(sorter)
		// The values change, but not their order.
		if f == Converted && ok && s.KeepsOrder() {
			f = kept
		}
		if f != kept {
			return "", &transform.MappingError{Field: dotted, Reason: f.reason(o).Error()}
		}
		p = next
	}
	return p.String(), nil
}

// Carried maps a field that the operations only rename or move.
func (m *requestMapping) Carried(dotted string) (to string, ok bool) {
	p, err := m.requestPath(dotted)
	if err != nil || p.ItemAt() >= 0 {
		return "", false
	}
	for _, o := range m.ops {
		next, f := o.Trace(p)
		if f != kept {
			return "", false
		}
		p = next
	}
	return p.String(), true
}

// requestPath parses a path of a request.
func (m *requestMapping) requestPath(dotted string) (edit.Path, error) {
	var p edit.Path
	for part := range strings.SplitSeq(dotted, ".") {
		switch part {
		case "":
			return nil, &transform.MappingError{Field: dotted, Reason: "the path has an empty part"}
		case "*":
			part = edit.ItemPart
		}
		p = append(p, []byte(part))
	}
	switch {
	case string(p[0]) == edit.ItemPart:
		return nil, &transform.MappingError{Field: dotted, Reason: "the path begins with *, but a record has fields, not items"}
	case string(p[0]) == "_id" && m.keys != nil:
		return nil, &transform.MappingError{Field: dotted, Reason: "the key has another form in the other version; ask for the name"}
	}
	return p, nil
}

// reason returns an error that explains why a request cannot follow a field through an operation.
func (f Fate) reason(o Op) error {
	switch f {
	case Converted:
		return fmt.Errorf("it has other values in the other version (%s)", o)
	case Covers:
		return fmt.Errorf("it is an object whose fields differ in the other version (%s)", o)
	case Spread:
		return fmt.Errorf("it is made into other fields in the other version (%s)", o)
	case Clashes:
		return fmt.Errorf("only the other version has a field of that name (%s)", o)
	default:
		return fmt.Errorf("the other version does not have it (%s)", o)
	}
}
