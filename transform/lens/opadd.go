package lens

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// add puts a field into each record that has the parent object. drop, its inverse, removes the
// field. The removed value survives on the other side as the complement, unless it is the constant.
type add struct {
	field    edit.Path
	from     edit.Path // path to copy the value from; nil: the value is val
	typ      bson.Type // 0: add nothing if the complement has nothing
	val      []byte
	constant bool
	verb     string // the operation's name in the lens
}

func (o *add) String() string {
	if o.from != nil {
		return fmt.Sprintf("%s %s to %s", o.verb, o.from, o.field)
	}
	return fmt.Sprintf("%s %s", o.verb, o.field)
}
func (o *add) inverse() op          { return (*drop)(o) }
func (o *add) takes() []edit.Path   { return nil }
func (o *add) makes() []edit.Path   { return []edit.Path{o.field} }
func (o *add) changes() []edit.Path { return nil }

func (o *add) reads() []edit.Path {
	if o.from == nil {
		return nil
	}
	return []edit.Path{o.from}
}

func (o *add) holds() []holding {
	if o.constant {
		return nil
	}
	return []holding{{path: o.field, by: o}}
}

// forms returns the form of a constant object: the application may order its fields differently.
func (o *add) forms() []form {
	if !o.constant || !edit.HasItems(o.typ) {
		return nil
	}
	return []form{{fields: []holding{{path: o.field, by: orderOf{o}}}, anyOrder: true}}
}

func (o *add) trace(p edit.Path) (edit.Path, fate) { return traceOneSided(p, o.field, clashes) }

// traceOneSided is the trace of an op whose field only one side has. within is the fate of paths
// within the field.
func traceOneSided(p, field edit.Path, within fate) (edit.Path, fate) {
	switch {
	case p.Under(field):
		return nil, within
	case field.Under(p):
		return p, covers
	}
	return p, kept
}

func (o *add) apply(e *edit.Editor, root *edit.Node) error {
	// A copied value replaces the default only if the source field exists.
	typ, val := o.typ, o.val
	if o.from != nil {
		from, i, err := e.Lookup(root, o.from)
		if err != nil {
			return err
		}
		if i >= 0 {
			typ, val = from.Elems[i].Type, from.Elems[i].Value()
		}
	}
	// Without the parent object there is no place for the field. Creating it would change the
	// record's meaning.
	n, err := e.Parent(root, o.field)
	if err != nil || n == nil {
		return err
	}
	if err := absent(n, o.field); err != nil {
		return err
	}
	if typ != 0 {
		n.Append(edit.Elem{Type: typ, Name: o.field.Last(), Val: val})
	}
	return nil
}

// drop is the inverse of add, and the operation remove.
type drop add

func (o *drop) String() string       { return (*add)(o).String() }
func (o *drop) inverse() op          { return (*add)(o) }
func (o *drop) takes() []edit.Path   { return []edit.Path{o.field} }
func (o *drop) makes() []edit.Path   { return nil }
func (o *drop) changes() []edit.Path { return nil }

func (o *drop) trace(p edit.Path) (edit.Path, fate) { return traceOneSided(p, o.field, gone) }

func (o *drop) apply(e *edit.Editor, root *edit.Node) error {
	if o.from != nil {
		// The reverse reads the field again, so its path must be readable.
		if _, _, err := e.Lookup(root, o.from); err != nil {
			return err
		}
	}
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 {
		return err
	}
	el := &n.Elems[i]
	// A lost value other than the constant could not come back.
	if is := (bson.RawValue{Type: el.Type, Value: el.Value()}); o.constant && !edit.SameFields(is, bson.RawValue{Type: o.typ, Value: o.val}) {
		return edit.Refuse(o.field, "is %s (%s), not the constant %s, which the other side could not give back",
			edit.Show(el.Type, el.Value()), edit.TypeName(el.Type), edit.Show(o.typ, o.val))
	}
	n.Remove(i)
	return nil
}

var (
	_ holder = (*add)(nil)
	_ former = (*add)(nil)
	_ reader = (*add)(nil)
)
