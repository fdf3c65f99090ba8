package lens

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// calc makes some fields into others by a pair of functions: split and join, compute,
// hook. A path may be on both sides; its field stays in its place.
//
// Fields that are all absent, or all null, give fields that all are. For the rest the
// result is calculated back and must be what it was made of.
type calc struct {
	name     string // how the lens calls the operation, with its fields
	from, to []path
	up, down calculation
	// anyFrom and anyTo are set for the fields whose objects are the same with their fields in
	// any order; nil: for none.
	anyFrom, anyTo []bool
	// parted is set where a comparison of one field can be made one of each of the
	// others: for split, seen from the whole.
	parted *splitter
	joined bool // the same, seen from the parts
}

// calculation makes values of values, in the order of the paths. An absent field is the
// zero RawValue. It is pure, and neither keeps nor changes the bytes that it is given.
type calculation func(in []bson.RawValue) ([]bson.RawValue, error)

func (o *calc) String() string { return o.name }
func (o *calc) inverse() op {
	return &calc{name: o.name, from: o.to, to: o.from, up: o.down, down: o.up, anyFrom: o.anyTo, anyTo: o.anyFrom, parted: o.parted, joined: !o.joined}
}
func (o *calc) takes() []path   { return without(o.from, o.to) }
func (o *calc) makes() []path   { return without(o.to, o.from) }
func (o *calc) changes() []path { return without(o.from, o.takes()) }

// without returns the paths of ps that are not in qs.
func without(ps, qs []path) []path {
	return slices.DeleteFunc(slices.Clone(ps), func(p path) bool { return slices.ContainsFunc(qs, p.equal) })
}

func (o *calc) trace(p path) (path, fate) {
	if slices.ContainsFunc(o.from, p.under) {
		return nil, spread
	}
	if slices.ContainsFunc(o.to, p.under) {
		return nil, clashes
	}
	for _, q := range slices.Concat(o.from, o.to) {
		if q.under(p) {
			return p, covers
		}
	}
	return p, kept
}

func (o *calc) apply(e *editor, root *node) error {
	for _, p := range o.makes() {
		if n, i, err := e.lookup(root, p); err != nil {
			return err
		} else if i >= 0 {
			return absent(n, p)
		}
	}
	in := make([]bson.RawValue, len(o.from))
	for i, p := range o.from {
		n, at, err := e.lookup(root, p)
		if err != nil {
			return err
		}
		if at >= 0 {
			in[i] = bson.RawValue{Type: n.elems[at].typ, Value: n.elems[at].value()}
		}
	}
	if all(in, 0) {
		return nil
	}
	out, err := calculate(o.up, in, len(o.to))
	if err != nil {
		return calcError(o.from, err)
	}
	back, err := calculate(o.down, out, len(in))
	if err != nil {
		return refuse(o.from[0], "would become %s, which cannot come back: %w", showAll(out), err)
	}
	for i := range in {
		if !sameValue(in[i], back[i]) && !(anyOrder(o.anyFrom, i) && sameFields(in[i], back[i])) {
			return refuse(o.from[i], "is %s, would become %s and come back as %s: %w", showValue(in[i]), showAll(out), showValue(back[i]), errInexact)
		}
	}
	return o.put(e, root, out)
}

func anyOrder(of []bool, i int) bool { return of != nil && of[i] }

// forms are the objects whose fields may stand in any order: the far side keeps its own.
func (o *calc) forms() []form {
	var out []form
	for i, p := range o.to {
		if anyOrder(o.anyTo, i) {
			out = append(out, form{fields: []holding{{path: p, by: orderOf{o}}}, anyOrder: true})
		}
	}
	return out
}

// orderOf names an operation that loses the order of fields.
type orderOf struct{ o op }

func (l orderOf) String() string { return l.o.String() + " (order of fields)" }

// put writes the results. New fields are put in before old ones go, so that an object
// which holds both stays where it is.
func (o *calc) put(e *editor, root *node, out []bson.RawValue) error {
	var empty []path
	for i, p := range o.to {
		n, at, err := e.lookup(root, p)
		switch v := out[i]; {
		case err != nil:
			return err
		case at >= 0 && v.Type != 0:
			n.set(at, v.Type, v.Value)
		case v.Type != 0:
			if err := e.insert(root, p, elem{typ: v.Type, val: v.Value}); err != nil {
				return err
			}
		case p.isItem():
			return refuse(p, "would be without a value, but an item cannot be left out")
		case at >= 0:
			empty = append(empty, p)
		}
	}
	var removed []path
	for _, p := range append(empty, o.takes()...) {
		n, at, err := e.lookup(root, p)
		if err != nil {
			return err
		}
		if at >= 0 {
			n.remove(at)
			removed = append(removed, p)
		}
	}
	for _, p := range removed {
		if err := e.prune(root, p.parent()); err != nil {
			return err
		}
	}
	return nil
}

// calculate is f with what holds for all: absence and null stay.
func calculate(f calculation, in []bson.RawValue, n int) ([]bson.RawValue, error) {
	switch {
	case all(in, 0):
		return make([]bson.RawValue, n), nil
	case all(in, bson.TypeNull):
		return slices.Repeat([]bson.RawValue{{Type: bson.TypeNull}}, n), nil
	}
	out, err := f(in)
	if err != nil {
		return nil, err
	}
	if len(out) != n {
		return nil, fmt.Errorf("it gave %d values, not %d", len(out), n)
	}
	return out, nil
}

func all(vs []bson.RawValue, t bson.Type) bool {
	return !slices.ContainsFunc(vs, func(v bson.RawValue) bool { return v.Type != t })
}

func sameValue(a, b bson.RawValue) bool { return a.Type == b.Type && bytes.Equal(a.Value, b.Value) }

// calcError names the field that a calculation complains of, the first if it names none.
func calcError(from []path, err error) error {
	var at *valueError
	if errors.As(err, &at) && at.index < len(from) {
		return refuse(from[at.index], "%w", at.err)
	}
	return refuse(path{[]byte(pathNames(from))}, "cannot be calculated: %w", err)
}

// valueError is an error of a calculation about one of its values.
type valueError struct {
	index int
	err   error
}

func (e *valueError) Error() string { return e.err.Error() }
func (e *valueError) Unwrap() error { return e.err }

func showValue(v bson.RawValue) string {
	if v.Type == 0 {
		return "absent"
	}
	return fmt.Sprintf("%s (%s)", show(v.Type, v.Value), TypeName(v.Type))
}

func showAll(vs []bson.RawValue) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = showValue(v)
	}
	return strings.Join(parts, ", ")
}

var (
	_ op     = (*calc)(nil)
	_ former = (*calc)(nil)
)
