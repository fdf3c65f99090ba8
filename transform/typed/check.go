package typed

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// check validates the rules of one direction against both types. Every named field must exist with
// the type that its function takes, and every field of the source type must go somewhere. The check
// of the other direction covers the fields of the target type.
func (w *way) check(from, to string) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var named []path
	for _, p := range w.opaque {
		if _, ok := w.from.at(p); !ok {
			fail("%s has no field %s: correct the fields of Whole", from, p)
		}
		named = append(named, p)
	}
	for _, r := range w.rules {
		for _, v := range r.source {
			named = append(named, v.path)
			shape, ok := w.from.at(v.path)
			switch {
			case v.path[0] == "_id":
				fail("the _id is no field that changes: use Names")
			case !ok:
				fail("%s has no field %s", from, v.path)
			case v.typ != nil:
				if takes, err := shapeOf(v.typ); err != nil {
					fail("field %s: %w", v.path, err)
				} else if !equalShapes(takes, shape) {
					fail("field %s of %s is %s, and its function takes %s", v.path, from, shape, takes)
				}
			case len(r.target) == 1:
				if other, ok := w.to.at(r.target[0].path); ok && !equalShapes(other, shape) {
					fail("field %s of %s is %s, and %s of %s is %s: use Convert", v.path, from, shape, r.target[0].path, to, other)
				}
			}
		}
	}
	for _, r := range w.rules {
		if !r.held || r.def == nil || len(r.target) == 0 {
			continue
		}
		// The other direction reports a missing field, so it is not an error here.
		shape, ok := w.to.at(r.target[0].path)
		if def, err := shapeOf(reflect.TypeOf(r.def)); err != nil || ok && !equalShapes(def, shape) {
			fail("field %s of %s is %s, and its default %s", r.target[0].path, to, shape, def)
		}
	}
	// Two rules for one field, or for a field and a part of it, would overwrite each other.
	for i, p := range named {
		for _, q := range named[i+1:] {
			if p.within(q) || q.within(p) {
				fail("field %s of %s is named twice, also as %s", p, from, q)
			}
		}
	}
	for _, lost := range w.lost(w.from, w.to, nil, named, w.targets()) {
		fail("field %s of %s has no counterpart in %s with the same type: declare what becomes of it (Rename, Convert, Split, Join), or that it is only there (OldOnly, NewOnly)", lost, from, to)
	}
	return errors.Join(errs...)
}

// lost lists the fields of from that no rule names and that cannot stay where they are. taken holds
// the target paths that rules write.
func (w *way) lost(from, to Shape, at path, named, taken []path) (out []string) {
	for _, f := range from.Fields {
		p := append(slices.Clone(at), f.Name)
		if len(p) == 1 && f.Name == "_id" || slices.ContainsFunc(named, func(q path) bool { return p.within(q) }) {
			continue
		}
		other, there := to.field(f.Name)
		// Descend into an object only if the target has one too, or if a rule names a field inside it.
		inside := f.Shape.Fields != nil && (other.Fields != nil || slices.ContainsFunc(named, func(q path) bool { return q.within(p) }))
		switch {
		case slices.ContainsFunc(taken, func(q path) bool { return p.within(q) }):
			out = append(out, p.String()) // a rule writes another field to this path
		case inside:
			out = append(out, w.lost(f.Shape, other, p, named, taken)...)
		case !there || !equalShapes(f.Shape, other):
			out = append(out, p.String())
		}
	}
	return out
}
