package operation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Calc calculates fields from other fields by a pair of functions. It implements split, join,
// compute and hook. If a path is in both From and To, its field keeps its place.
//
// If all inputs are absent, all results are absent. If all inputs are null, all results are null.
// In all other cases Calc calculates the inputs back from the results, and refuses the record if
// they differ.
type Calc struct {
	Name     string // the operation and its fields as the lens writes them
	From, To []edit.Path
	Up, Down Calculation
	// AnyFrom and AnyTo have one value for each path of From and To. It is true if the order of
	// fields in that value has no meaning. Nil means false for all.
	AnyFrom, AnyTo []bool
	// Parted is the Splitter of a split or join. Comparisons of the whole string then map to
	// comparisons of its parts, and back. Nil for other operations.
	Parted *Splitter
	joined bool // the operation is a join: from holds the parts
}

// Calculation calculates one value for each path of the results, from one value for each path of
// the inputs. The zero RawValue is an absent field. A Calculation must be pure. It must not keep or
// modify the bytes that it gets. A *ValueError names the input at fault.
type Calculation func(in []bson.RawValue) ([]bson.RawValue, error)

func (o *Calc) String() string { return o.Name }
func (o *Calc) Inverse() Op {
	return &Calc{Name: o.Name, From: o.To, To: o.From, Up: o.Down, Down: o.Up, AnyFrom: o.AnyTo, AnyTo: o.AnyFrom, Parted: o.Parted, joined: !o.joined}
}
func (o *Calc) Takes() []edit.Path   { return without(o.From, o.To) }
func (o *Calc) Makes() []edit.Path   { return without(o.To, o.From) }
func (o *Calc) Changes() []edit.Path { return without(o.From, o.Takes()) }

// without returns the paths of ps that are not in qs.
func without(ps, qs []edit.Path) []edit.Path {
	return slices.DeleteFunc(slices.Clone(ps), func(p edit.Path) bool { return slices.ContainsFunc(qs, p.Equal) })
}

func (o *Calc) Trace(p edit.Path) (edit.Path, Fate) {
	if slices.ContainsFunc(o.From, p.Under) {
		return nil, Spread
	}
	if slices.ContainsFunc(o.To, p.Under) {
		return nil, Clashes
	}
	for _, q := range slices.Concat(o.From, o.To) {
		if q.Under(p) {
			return p, Covers
		}
	}
	return p, kept
}

func (o *Calc) Apply(e *edit.Editor, root *edit.Node) error {
	// A field with the name of a result would be lost or mistaken for the result.
	for _, p := range o.Makes() {
		if n, i, err := e.Lookup(root, p); err != nil {
			return err
		} else if i >= 0 {
			return Absent(n, p)
		}
	}
	// Read all inputs before writing: inputs and results may share fields.
	in := make([]bson.RawValue, len(o.From))
	for i, p := range o.From {
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
	out, err := calculate(o.Up, in, len(o.To))
	if err != nil {
		return calcError(o.From, err)
	}
	// Prove that the reverse gives the same input.
	back, err := calculate(o.Down, out, len(in))
	if err != nil {
		return edit.Refuse(o.From[0], "would become %s, which cannot be converted back: %w", showAll(out), err)
	}
	for i := range in {
		// The order of fields is no difference if the far side keeps its own.
		if !edit.SameValue(in[i], back[i]) && !(anyOrder(o.AnyFrom, i) && edit.SameFields(in[i], back[i])) {
			return edit.Refuse(o.From[i], "is %s, would become %s, and the reverse would give %s: %w", edit.ShowValue(in[i]), showAll(out), edit.ShowValue(back[i]), scalar.ErrInexact)
		}
	}
	return o.put(e, root, out)
}

func anyOrder(of []bool, i int) bool { return of != nil && of[i] }

// Forms returns the results whose fields may be in any order. The far side keeps its own order.
func (o *Calc) Forms() []form {
	var out []form
	for i, p := range o.To {
		if anyOrder(o.AnyTo, i) {
			out = append(out, form{Fields: []Holding{{Path: p, By: orderOf{o}}}, anyOrder: true})
		}
	}
	return out
}

// orderOf names an operation that loses the order of fields, for errors and reports.
type orderOf struct{ o Op }

func (l orderOf) String() string { return l.o.String() + " (order of fields)" }

// put writes the results. It adds new fields before it removes old ones, so that an object with
// both keeps its place.
func (o *Calc) put(e *edit.Editor, root *edit.Node, out []bson.RawValue) error {
	// Collect the fields without a result. They are removed last, with the old fields.
	var empty []edit.Path
	for i, p := range o.To {
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
			return edit.Refuse(p, "would have no value, but an item cannot be absent")
		case at >= 0:
			empty = append(empty, p)
		}
	}
	var removed []edit.Path
	for _, p := range append(empty, o.Takes()...) {
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
func calculate(f Calculation, in []bson.RawValue, n int) ([]bson.RawValue, error) {
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
	var at *ValueError
	if errors.As(err, &at) && at.Index < len(from) {
		return edit.Refuse(from[at.Index], "%w", at.Err)
	}
	return edit.Refuse(edit.Path{[]byte(PathNames(from))}, "cannot be calculated: %w", err)
}

// ValueError is a Calculation's error about one of its inputs. Index counts the inputs from 0. Err
// continues the sentence after the field's name.
type ValueError struct {
	Index int
	Err   error
}

func (e *ValueError) Error() string { return e.Err.Error() }
func (e *ValueError) Unwrap() error { return e.Err }

func showAll(vs []bson.RawValue) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = edit.ShowValue(v)
	}
	return strings.Join(parts, ", ")
}

var (
	_ Op     = (*Calc)(nil)
	_ former = (*Calc)(nil)
)

// PathNames returns the paths for an error, separated by commas.
func PathNames(ps []edit.Path) string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}
