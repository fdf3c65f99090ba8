package operation

import (
	"fmt"
	"slices"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// checkNumber refuses a second conversion of a value if only one of the two allows numbers of any
// type. The other one would accept only some of the numbers.
func checkNumber(before []Op, o Op) error {
	for _, v := range valuesOf(before, o) {
		earlier := lastOn(v.before, v.path)
		if earlier == nil {
			continue
		}
		// Both sides of the value must allow any number, or neither.
		first, isConvert := earlier.(*Convert)
		toNumber := isConvert && first.To == scalar.Number
		later, isConvert := v.op.(*Convert)
		fromNumber := isConvert && later.From == scalar.Number
		if toNumber != fromNumber {
			return fmt.Errorf("%s follows %s: only one of them has a number of any type; write one conversion for both", v.op, earlier)
		}
	}
	return nil
}

// valued is an operation on one value, with the operations before it.
type valued struct {
	op     Op
	path   edit.Path
	before []Op
}

// valuesOf returns the operations in o that read values, including those within its items.
func valuesOf(before []Op, o Op) []valued {
	switch o := o.(type) {
	case *Convert:
		return []valued{{o, o.Field, before}}
	case *Table:
		return []valued{{o, o.Field, before}}
	case *Calc:
		var out []valued
		for _, p := range o.From {
			out = append(out, valued{o, p, before})
		}
		return out
	case *Each:
		var out []valued
		// Wrap the inner operations again, so that lastOn sees them as part of the each.
		for k, inner := range o.Run.Ops {
			for _, v := range valuesOf(o.Run.Ops[:k:k], inner) {
				earlier := &Each{Field: o.Field, in: o.in, Run: Program{Ops: v.before}}
				out = append(out, valued{v.op, o.Field.Join(v.path), append(before[:len(before):len(before)], earlier)})
			}
		}
		return out
	default:
		return nil
	}
}

// lastOn returns the operation that gave the value at p its type, or nil.
func lastOn(before []Op, p edit.Path) Op {
	for _, o := range slices.Backward(before) {
		switch o := o.(type) {
		case *Convert:
			if o.Field.Equal(p) {
				return o
			}
		case *Table:
			if o.Field.Equal(p) {
				return o
			}
		case *Calc:
			if slices.ContainsFunc(o.To, p.Equal) {
				return o
			}
		// Follow the value to its place before the list existed.
		case *Wrap:
			if p.Under(o.Field) && !p.Equal(o.Field) {
				p = o.Field.Join(p[len(o.Field)+1:])
				continue
			}
		case *Unwrap:
			if p.Under(o.Field) {
				p = (*Wrap)(o).item(p)
				continue
			}
		case *Each:
			if p.Under(o.Field) && !p.Equal(o.Field) {
				if inner := lastOn(o.Run.Ops, edit.Path{edit.ItemName}.Join(p[len(o.Field)+1:])); inner != nil {
					return inner
				}
			}
		}
		// Follow the field to its name before this operation.
		was, f := o.Inverse().Trace(p)
		if f != kept && f != Converted || was == nil {
			return nil
		}
		p = was
	}
	return nil
}
