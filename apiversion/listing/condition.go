package listing

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// checked finds the field of a condition and converts the values to its type.
func checked(c transform.Condition, d protoreflect.MessageDescriptor) (Filter, error) {
	parts, err := SplitPath(c.Path)
	if err != nil {
		return Filter{}, err
	}
	f, err := resolve(d, parts)
	if err != nil {
		return Filter{}, err
	}
	at := func(err error) (Filter, error) { return Filter{}, fmt.Errorf("%s: %w", c.Path, err) }
	// has() takes no value, so it needs none of the checks below.
	if c.Op == transform.OpHas {
		if f.shape == single && !f.many && !f.hasPresence() {
			// A field without presence always has a value, so has() means "not zero" here. Written
			// as a comparison, it keeps that meaning for another version in which the field has
			// another type.
			zero := Filter{Condition: &transform.Condition{Path: c.Path, Op: transform.OpEqual, Values: []any{ValueOf(f.fd, f.fd.Default())}}, field: &f}
			return Negate(zero), nil
		}
		c.Values = nil
		return Filter{Condition: &c, field: &f}, nil
	}
	if c.Op == transform.OpEqual && len(c.Values) == 1 && c.Values[0] == nil {
		// == null asks whether the field is absent. Only a field with presence can be.
		if f.shape != single || !f.hasPresence() {
			return at(fmt.Errorf("is always set and never null"))
		}
		return Negate(Filter{Condition: &transform.Condition{Path: c.Path, Op: transform.OpHas}, field: &f}), nil
	}
	if err := f.allows(c.Op); err != nil {
		return at(err)
	}
	if c.Op != transform.OpIn && len(c.Values) != 1 {
		return at(fmt.Errorf("%s takes one value", c.Op))
	}
	values := make([]any, len(c.Values))
	for i := range c.Values {
		// Eval compares values of one Go type only, so convert them once here.
		if values[i], err = Coerce(c.Values[i], f.fd); err != nil {
			return at(err)
		}
	}
	c.Values = values
	return Filter{Condition: &c, field: &f}, nil
}

// hasPresence reports whether the value at a single-valued path can be absent. Map entries can.
func (f field) hasPresence() bool {
	return f.steps[len(f.steps)-1].name == "" || f.fd.HasPresence()
}

// allows checks that the operator fits the field's type.
func (f field) allows(op transform.Operator) error {
	t := typeOf(f.fd)
	switch {
	case f.shape == list && op != transform.OpContains:
		return fmt.Errorf("is a list: use contains()")
	case f.shape == entries:
		return fmt.Errorf("is a map: compare one of its entries, or use has()")
	case t == otherType:
		return fmt.Errorf("is a message of type %s: use has(), or compare its fields", f.fd.Message().FullName())
	}
	switch op {
	case transform.OpEqual, transform.OpIn:
		return nil
	case transform.OpLess, transform.OpLessEqual, transform.OpGreater, transform.OpGreaterEqual:
		// A range of enums, bools or bytes has no meaning for a client.
		if t == enumType || t == boolType || t == bytesType {
			return fmt.Errorf("is %s and has no order: use == or in", t)
		}
		return nil
	case transform.OpContains:
		if f.shape == list || t == textType {
			return nil
		}
		return fmt.Errorf("is %s: contains() is for strings and lists", t)
	case transform.OpPrefix:
		if t == textType {
			return nil
		}
		return fmt.Errorf("is %s: startsWith() is for strings", t)
	case transform.OpHas:
		return nil
	default:
		return fmt.Errorf("operator %q is unknown", op)
	}
}

// Eval reports whether a message matches. It first checks a filter that Check has not checked. A
// filter that does not fit the message type matches nothing.
func (f Filter) Eval(msg proto.Message) bool { return f.eval(msg.ProtoReflect()) }

func (f Filter) eval(m protoreflect.Message) bool {
	switch {
	case f.Condition != nil:
		if f.field == nil {
			c, err := checked(*f.Condition, m.Descriptor())
			return err == nil && c.eval(m)
		}
		return f.field.matches(m, *f.Condition)
	// An unset field fails its condition, so the negation matches it: != is the negation of ==.
	case f.Not != nil:
		return !f.Not.eval(m)
	case len(f.Or) > 0:
		for i := range f.Or {
			if f.Or[i].eval(m) {
				return true
			}
		}
		return false
	default:
		for i := range f.And {
			if !f.And[i].eval(m) {
				return false
			}
		}
		return true
	}
}

// matches reports whether any value at the path meets the condition.
func (f *field) matches(m protoreflect.Message, c transform.Condition) bool {
	found := false
	f.values(m, func(v protoreflect.Value) bool {
		switch {
		// Lists and maps have no presence: has() asks whether they have items.
		case f.shape == list && c.Op == transform.OpHas:
			found = v.List().Len() > 0
		case f.shape == entries:
			found = v.Map().Len() > 0
		case c.Op == transform.OpHas:
			found = true
		// The only other operator for a list is contains(), which looks for an equal item.
		case f.shape == list:
			for i := 0; i < v.List().Len() && !found; i++ {
				found = f.compares(ValueOf(f.fd, v.List().Get(i)), transform.OpEqual, c.Values[0])
			}
		case c.Op == transform.OpIn:
			x := ValueOf(f.fd, v)
			for i := 0; i < len(c.Values) && !found; i++ {
				found = f.compares(x, transform.OpEqual, c.Values[i])
			}
		default:
			found = f.compares(ValueOf(f.fd, v), c.Op, c.Values[0])
		}
		return !found
	})
	return found
}

// compares reports whether a value, or another name of the named resource, meets the operator.
func (f *field) compares(a any, op transform.Operator, b any) bool {
	if compares(a, op, b) {
		return true
	}
	name, ok := a.(string)
	if !ok || f.others == nil {
		return false
	}
	return slices.ContainsFunc(f.others(name), func(other string) bool { return compares(other, op, b) })
}

// compares applies an operator to two values of the same type.
func compares(a any, op transform.Operator, b any) bool {
	switch op {
	case transform.OpContains, transform.OpPrefix:
		s, ok := a.(string)
		part, alsoOK := b.(string)
		if op == transform.OpPrefix {
			return ok && alsoOK && strings.HasPrefix(s, part)
		}
		return ok && alsoOK && strings.Contains(s, part)
	}
	// CompareValues sorts NaN before all numbers. In a filter NaN equals nothing, as in CEL.
	if isNaN(a) || isNaN(b) {
		return false
	}
	c, ok := CompareValues(a, b)
	if !ok {
		return false
	}
	switch op {
	case transform.OpEqual:
		return c == 0
	case transform.OpLess:
		return c < 0
	case transform.OpLessEqual:
		return c <= 0
	case transform.OpGreater:
		return c > 0
	case transform.OpGreaterEqual:
		return c >= 0
	default:
		return false
	}
}

func isNaN(x any) bool {
	f, ok := x.(float64)
	return ok && f != f
}
