package lens

import (
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/transform"
)

// UpMapping maps requests in terms of the old version to such in terms of the new one.
//
// A comparison is mapped where a record of the old side meets it just when the one that
// the lens makes of it meets what it becomes:
//
//   - rename, move, and fields that nothing touches: any comparison.
//   - convert between types: == and in, whose literals are converted like the values;
//     < and the like where both types have the same order. A table: == and in.
//   - wrap and unwrap: any comparison, of the item.
//   - split: == of the whole is one == for each part, and startsWith one for the part in
//     which it ends, with == for those before. join: == of the first part is a
//     startsWith of the whole, and == of all parts, which only CompareAll sees, is ==.
//   - each: comparisons of "*" parts, and contains.
//   - A field that the other side does not have, compute and hook: an error.
//
// A literal that the other side's field can never hold makes a comparison that matches
// nothing: an "in" without values. So it does on this side, where a record with that
// value does not come about or is parked. A list or object is never equal to a literal.
//
// Field gives all fields that the asked one is made into; for an object, also those that
// were moved out of it. Order maps only fields whose order the operations keep.
func (l *Lens) UpMapping() transform.Mapping { return &requestMapping{l.up.ops, l.keyMapping(true)} }

// DownMapping is UpMapping the other way.
func (l *Lens) DownMapping() transform.Mapping {
	return &requestMapping{l.down.ops, l.keyMapping(false)}
}

// requestMapping maps requests of the side before ops.
type requestMapping struct {
	ops  []op
	keys keyMapping // nil for an unchanged key
}

// condition is a transform.Condition whose path is split.
type condition struct {
	path   path
	op     transform.Operator
	values []any
}

// comparer is an op that maps comparisons of fields whose values it changes. What it
// cannot map is a plain error with the reason.
type comparer interface {
	compare(c condition) ([]condition, error)
}

// conjunctionComparer maps comparisons that have to be met together.
type conjunctionComparer interface {
	compareAll(cs []condition) ([]condition, error)
}

// spreader is an op that determines itself which fields hold the same as p afterwards.
type spreader interface {
	fieldsOf(p path) ([]path, error)
}

// sorter is an op that can keep the order of values that it changes.
type sorter interface{ keepsOrder() bool }

var (
	_ transform.Mapping            = (*requestMapping)(nil)
	_ transform.ConjunctionMapping = (*requestMapping)(nil)
	_ transform.OrderedMapping     = (*requestMapping)(nil)
	_ transform.CarryingMapping    = (*requestMapping)(nil)
)

// Name maps a record's name.
func (m *requestMapping) Name(name string) (string, error) {
	if m.keys == nil {
		return name, nil
	}
	return m.keys.Name(name)
}

// Parent maps the beginning of names.
func (m *requestMapping) Parent(parent string) (string, error) {
	if m.keys == nil {
		return parent, nil
	}
	return m.keys.Parent(parent)
}

// KeepsOrder reports whether the names under a parent sort alike on both sides: where the
// patterns have the same variables in the same order behind what the parent fixes.
func (m *requestMapping) KeepsOrder(parent string) bool {
	k, ok := m.keys.(keyWay)
	return m.keys == nil || ok && k.keepsOrder(parent)
}

// Field maps a path for a mask.
func (m *requestMapping) Field(dotted string) ([]string, error) {
	p, err := m.requestPath(dotted)
	if err != nil {
		return nil, err
	}
	ps := []path{p}
	for _, o := range m.ops {
		var next []path
		for _, p := range ps {
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
		// A field within another of them, or there before, is no news.
		if !slices.ContainsFunc(ps[:i], p.equal) && !slices.ContainsFunc(ps, func(q path) bool { return len(q) < len(p) && p.under(q) }) {
			out = append(out, p.String())
		}
	}
	return out, nil
}

func fieldsAfter(o op, p path) ([]path, error) {
	if err := namedEntry(o, p); err != nil {
		return nil, err
	}
	if s, ok := o.(spreader); ok {
		return s.fieldsOf(p)
	}
	next, f := o.trace(p)
	if f == kept || f == converted || f == covers {
		return []path{next}, nil
	}
	return nil, f.reason(o)
}

// Compare maps one comparison.
func (m *requestMapping) Compare(c transform.Condition) ([]transform.Condition, error) {
	return m.CompareAll([]transform.Condition{c})
}

// CompareAll maps a conjunction as a whole.
func (m *requestMapping) CompareAll(all []transform.Condition) ([]transform.Condition, error) {
	cs := make([]condition, len(all))
	for i, c := range all {
		p, err := m.requestPath(c.Path)
		if err != nil {
			return nil, err
		}
		cs[i] = condition{p, c.Op, c.Values}
	}
	for _, o := range m.ops {
		next, err := compareAll(o, cs)
		if err != nil {
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
		out[i] = transform.Condition{Path: c.path.String(), Op: c.op, Values: c.values}
	}
	return out, nil
}

func compareAll(o op, cs []condition) ([]condition, error) {
	if j, ok := o.(conjunctionComparer); ok {
		for _, c := range cs {
			if err := namedEntry(o, c.path); err != nil {
				return nil, err
			}
		}
		return j.compareAll(cs)
	}
	var out []condition
	for _, c := range cs {
		next, err := compareOne(o, c)
		if err != nil {
			return nil, err
		}
		out = append(out, next...)
	}
	return out, nil
}

// compareOne maps a comparison: that of a value which stays the same, or as the
// operation knows.
func compareOne(o op, c condition) ([]condition, error) {
	if err := namedEntry(o, c.path); err != nil {
		return nil, err
	}
	if j, ok := o.(conjunctionComparer); ok {
		return j.compareAll([]condition{c})
	}
	if k, ok := o.(comparer); ok {
		return k.compare(c)
	}
	next, f := o.trace(c.path)
	if f != kept {
		return nil, f.reason(o)
	}
	c.path = next
	return []condition{c}, nil
}

// namedEntry refuses a path to any entry of a map where an operation works on one of
// them, by its name.
func namedEntry(o op, p path) error {
	at := p.itemAt()
	if at < 0 {
		return nil
	}
	for _, q := range pathsOf(o) {
		if len(q) > at && q[:at].equal(p[:at]) {
			return fmt.Errorf("it is any entry, and %s is another in the other version (%s)", q, o)
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
	if p.itemAt() >= 0 {
		return "", &transform.MappingError{Field: dotted, Reason: "records cannot be sorted by any item of a list or map"}
	}
	for _, o := range m.ops {
		next, f := o.trace(p)
		s, ok := o.(sorter)
		if f == converted && ok && s.keepsOrder() {
			f = kept
		}
		if f != kept {
			return "", &transform.MappingError{Field: dotted, Reason: f.reason(o).Error()}
		}
		p = next
	}
	return p.String(), nil
}

// Carried maps a field that the operations move at most.
func (m *requestMapping) Carried(dotted string) (to string, ok bool) {
	p, err := m.requestPath(dotted)
	if err != nil || p.itemAt() >= 0 {
		return "", false
	}
	for _, o := range m.ops {
		next, f := o.trace(p)
		if f != kept {
			return "", false
		}
		p = next
	}
	return p.String(), true
}

// requestPath reads a path of a request.
func (m *requestMapping) requestPath(dotted string) (path, error) {
	var p path
	for part := range strings.SplitSeq(dotted, ".") {
		switch part {
		case "":
			return nil, &transform.MappingError{Field: dotted, Reason: "the path has an empty part"}
		case "*":
			part = itemPart
		}
		p = append(p, []byte(part))
	}
	switch {
	case string(p[0]) == itemPart:
		return nil, &transform.MappingError{Field: dotted, Reason: "the path begins with *, but a record has fields, not items"}
	case string(p[0]) == "_id" && m.keys != nil:
		return nil, &transform.MappingError{Field: dotted, Reason: "the key has another form in the other version; ask for the name"}
	}
	return p, nil
}

// reason returns why a request cannot follow a field through an operation.
func (f fate) reason(o op) error {
	switch f {
	case converted:
		return fmt.Errorf("it has other values in the other version (%s)", o)
	case covers:
		return fmt.Errorf("it is an object whose fields are other ones in the other version (%s)", o)
	case spread:
		return fmt.Errorf("it is made into other fields in the other version (%s)", o)
	case clashes:
		return fmt.Errorf("only the other version has a field of that name (%s)", o)
	default:
		return fmt.Errorf("the other version does not have it (%s)", o)
	}
}
