package lens

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// calc calculates fields from other fields by a pair of functions. It implements split, join,
// compute and hook. A path may be on both sides; its field then keeps its place.
//
// If all fields are absent, or all are null, so are the results. In all other cases calc calculates
// the inputs back from the results and requires them to be equal.
type calc struct {
	name     string // the operation and its fields as the lens writes them
	from, to []edit.Path
	up, down calculation
	// anyFrom and anyTo are true for fields whose objects are equal with their fields in any order.
	// Nil means false for all.
	anyFrom, anyTo []bool
	// parted is set if a comparison of one field can become comparisons of the others, as for
	// split.
	parted *splitter
	joined bool // the operation is a join: from holds the parts
}

// calculation calculates values from values, in the order of the paths. The zero RawValue is an
// absent field. It must be pure and must not keep or modify the bytes that it gets.
type calculation func(in []bson.RawValue) ([]bson.RawValue, error)

func (o *calc) String() string { return o.name }
func (o *calc) inverse() op {
	return &calc{name: o.name, from: o.to, to: o.from, up: o.down, down: o.up, anyFrom: o.anyTo, anyTo: o.anyFrom, parted: o.parted, joined: !o.joined}
}
func (o *calc) takes() []edit.Path   { return without(o.from, o.to) }
func (o *calc) makes() []edit.Path   { return without(o.to, o.from) }
func (o *calc) changes() []edit.Path { return without(o.from, o.takes()) }

// without returns the paths of ps that are not in qs.
func without(ps, qs []edit.Path) []edit.Path {
	return slices.DeleteFunc(slices.Clone(ps), func(p edit.Path) bool { return slices.ContainsFunc(qs, p.Equal) })
}

func (o *calc) trace(p edit.Path) (edit.Path, fate) {
	if slices.ContainsFunc(o.from, p.Under) {
		return nil, spread
	}
	if slices.ContainsFunc(o.to, p.Under) {
		return nil, clashes
	}
	for _, q := range slices.Concat(o.from, o.to) {
		if q.Under(p) {
			return p, covers
		}
	}
	return p, kept
}

func (o *calc) apply(e *edit.Editor, root *edit.Node) error {
	// A field with the name of a result would be lost or mistaken for the result.
	for _, p := range o.makes() {
		if n, i, err := e.Lookup(root, p); err != nil {
			return err
		} else if i >= 0 {
			return absent(n, p)
		}
	}
	// Read all inputs before writing: inputs and results may share fields.
	in := make([]bson.RawValue, len(o.from))
	for i, p := range o.from {
		n, at, err := e.Lookup(root, p)
		if err != nil {
			return err
		}
		if at >= 0 {
			in[i] = bson.RawValue{Type: n.Elems[at].Type, Value: n.Elems[at].Value()}
		}
	}
	if all(in, 0) {
		return nil
	}
	out, err := calculate(o.up, in, len(o.to))
	if err != nil {
		return calcError(o.from, err)
	}
	// Prove that the reverse gives the same input.
	back, err := calculate(o.down, out, len(in))
	if err != nil {
		return edit.Refuse(o.from[0], "would become %s, which cannot come back: %w", showAll(out), err)
	}
	for i := range in {
		// The order of fields is no difference if the far side keeps its own.
		if !edit.SameValue(in[i], back[i]) && !(anyOrder(o.anyFrom, i) && edit.SameFields(in[i], back[i])) {
			return edit.Refuse(o.from[i], "is %s, would become %s and come back as %s: %w", edit.ShowValue(in[i]), showAll(out), edit.ShowValue(back[i]), scalar.ErrInexact)
		}
	}
	return o.put(e, root, out)
}

func anyOrder(of []bool, i int) bool { return of != nil && of[i] }

// forms returns the objects whose fields may be in any order. The far side keeps its own order.
func (o *calc) forms() []form {
	var out []form
	for i, p := range o.to {
		if anyOrder(o.anyTo, i) {
			out = append(out, form{fields: []holding{{path: p, by: orderOf{o}}}, anyOrder: true})
		}
	}
	return out
}

// orderOf names an operation that loses the order of fields, for errors and reports.
type orderOf struct{ o op }

func (l orderOf) String() string { return l.o.String() + " (order of fields)" }

// put writes the results. It adds new fields before it removes old ones, so that an object with
// both keeps its place.
func (o *calc) put(e *edit.Editor, root *edit.Node, out []bson.RawValue) error {
	// Collect the fields without a result. They are removed last, with the old fields.
	var empty []edit.Path
	for i, p := range o.to {
		n, at, err := e.Lookup(root, p)
		switch v := out[i]; {
		case err != nil:
			return err
		case at >= 0 && v.Type != 0:
			n.Set(at, v.Type, v.Value)
		case v.Type != 0:
			if err := e.Insert(root, p, edit.Elem{Type: v.Type, Val: v.Value}); err != nil {
				return err
			}
		// Leaving out an item would shift the others.
		case p.IsItem():
			return edit.Refuse(p, "would be without a value, but an item cannot be left out")
		case at >= 0:
			empty = append(empty, p)
		}
	}
	var removed []edit.Path
	for _, p := range append(empty, o.takes()...) {
		n, at, err := e.Lookup(root, p)
		if err != nil {
			return err
		}
		if at >= 0 {
			n.Remove(at)
			removed = append(removed, p)
		}
	}
	// Prune last: an earlier removal may have emptied an object that a later field is in.
	for _, p := range removed {
		if err := e.Prune(root, p.Parent()); err != nil {
			return err
		}
	}
	return nil
}

// calculate calls f, except where all inputs are absent or all are null.
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
	// A hook may return too few values. Indexing them would panic later.
	if len(out) != n {
		return nil, fmt.Errorf("it gave %d values, not %d", len(out), n)
	}
	return out, nil
}

func all(vs []bson.RawValue, t bson.Type) bool {
	return !slices.ContainsFunc(vs, func(v bson.RawValue) bool { return v.Type != t })
}

// calcError returns an error about the field that a calculation rejects, or about all fields if it
// names none.
func calcError(from []edit.Path, err error) error {
	var at *valueError
	if errors.As(err, &at) && at.index < len(from) {
		return edit.Refuse(from[at.index], "%w", at.err)
	}
	return edit.Refuse(edit.Path{[]byte(pathNames(from))}, "cannot be calculated: %w", err)
}

// valueError is a calculation's error about one of its values.
type valueError struct {
	index int
	err   error
}

func (e *valueError) Error() string { return e.err.Error() }
func (e *valueError) Unwrap() error { return e.err }

func showAll(vs []bson.RawValue) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = edit.ShowValue(v)
	}
	return strings.Join(parts, ", ")
}

var (
	_ op     = (*calc)(nil)
	_ former = (*calc)(nil)
)

func pathNames(ps []edit.Path) string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}
