package lens

import (
	"fmt"
	"slices"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// checkNumber refuses a second conversion of a value if only one of the two allows numbers of any
// type. The other one would accept only some of the numbers.
func checkNumber(before []op, o op) error {
	for _, v := range valuesOf(before, o) {
		earlier := lastOn(v.before, v.path)
		if earlier == nil {
			continue
		}
		// Both sides of the value must allow any number, or neither.
		first, isConvert := earlier.(*convert)
		toNumber := isConvert && first.to == scalar.Number
		later, isConvert := v.op.(*convert)
		fromNumber := isConvert && later.from == scalar.Number
		if toNumber != fromNumber {
			return fmt.Errorf("%s follows %s: one of them has a number of any type, and the other does not; write one conversion for both", v.op, earlier)
		}
	}
	return nil
}

// valued is an operation on one value, with the operations before it.
type valued struct {
	op     op
	path   edit.Path
	before []op
}

// valuesOf returns the operations in o that read values, including those within its items.
func valuesOf(before []op, o op) []valued {
	switch o := o.(type) {
	case *convert:
		return []valued{{o, o.field, before}}
	case *table:
		return []valued{{o, o.field, before}}
	case *calc:
		var out []valued
		for _, p := range o.from {
			out = append(out, valued{o, p, before})
		}
		return out
	case *each:
		var out []valued
		// Wrap the inner operations again, so that lastOn sees them as part of the each.
		for k, inner := range o.run.ops {
			for _, v := range valuesOf(o.run.ops[:k:k], inner) {
				earlier := &each{field: o.field, in: o.in, run: program{ops: v.before}}
				out = append(out, valued{v.op, o.field.Join(v.path), append(before[:len(before):len(before)], earlier)})
			}
		}
		return out
	default:
		return nil
	}
}

// lastOn returns the operation that gave the value at p its type, or nil.
func lastOn(before []op, p edit.Path) op {
	for _, o := range slices.Backward(before) {
		switch o := o.(type) {
		case *convert:
			if o.field.Equal(p) {
				return o
			}
		case *table:
			if o.field.Equal(p) {
				return o
			}
		case *calc:
			if slices.ContainsFunc(o.to, p.Equal) {
				return o
			}
		// Follow the value to its place before the list existed.
		case *wrap:
			if p.Under(o.field) && !p.Equal(o.field) {
				p = o.field.Join(p[len(o.field)+1:])
				continue
			}
		case *unwrap:
			if p.Under(o.field) {
				p = (*wrap)(o).item(p)
				continue
			}
		case *each:
			if p.Under(o.field) && !p.Equal(o.field) {
				if inner := lastOn(o.run.ops, edit.Path{edit.ItemName}.Join(p[len(o.field)+1:])); inner != nil {
					return inner
				}
			}
		}
		// Follow the field to its name before this operation.
		was, f := o.inverse().trace(p)
		if f != kept && f != converted || was == nil {
			return nil
		}
		p = was
	}
	return nil
}
