package listing

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// checked resolves a condition and brings its values into the types of its field.
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
	if c.Op == transform.OpHas {
		if f.shape == single && !f.many && !f.hasPresence() {
			// Such a field is always there; has() asks whether it is more than zero. Said so,
			// it keeps its meaning where another version has another type.
			zero := Filter{Condition: &transform.Condition{Path: c.Path, Op: transform.OpEqual, Values: []any{ValueOf(f.fd, f.fd.Default())}}, field: &f}
			return Negate(zero), nil
		}
		c.Values = nil
		return Filter{Condition: &c, field: &f}, nil
	}
	if c.Op == transform.OpEqual && len(c.Values) == 1 && c.Values[0] == nil {
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
		if values[i], err = Coerce(c.Values[i], f.fd); err != nil {
			return at(err)
		}
	}
	c.Values = values
	return Filter{Condition: &c, field: &f}, nil
}

// hasPresence reports whether what a single-valued path leads to can be absent itself:
// entries of maps can.
func (f field) hasPresence() bool {
	return f.steps[len(f.steps)-1].name == "" || f.fd.HasPresence()
}

// allows checks the operator against the field's type.
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

// Eval reports whether a message matches. A filter that was not checked is checked
// against the message first; one that does not fit matches nothing.
func (f Filter) Eval(msg proto.Message) bool { return f.eval(msg.ProtoReflect()) }

func (f Filter) eval(m protoreflect.Message) bool {
	switch {
	case f.Condition != nil:
		if f.field == nil {
			c, err := checked(*f.Condition, m.Descriptor())
			return err == nil && c.eval(m)
		}
		return f.field.matches(m, *f.Condition)
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
		case f.shape == list && c.Op == transform.OpHas:
			found = v.List().Len() > 0
		case f.shape == entries:
			found = v.Map().Len() > 0
		case c.Op == transform.OpHas:
			found = true
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

// compares is met by the value, or by another name of what it names.
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

// compares applies an operator to two values of one type.
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
