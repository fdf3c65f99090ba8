package operation

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// Add puts a field into each record that has the field's parent object. Its inverse is Drop. Add
// implements the operations add and copy. A field with a default belongs to the application
// afterwards, so the far side keeps its value as the complement.
type Add struct {
	Field    edit.Path
	From     edit.Path // field to copy the value from, if it exists; nil: the value is Val
	Type     bson.Type // of Val; 0: no default, the value comes from From or the complement alone
	Val      []byte
	Constant bool
	Verb     string // the operation's name in the lens
}

func (o *Add) String() string {
	if o.From != nil {
		return fmt.Sprintf("%s %s to %s", o.Verb, o.From, o.Field)
	}
	return fmt.Sprintf("%s %s", o.Verb, o.Field)
}
func (o *Add) Inverse() Op          { return (*Drop)(o) }
func (o *Add) Takes() []edit.Path   { return nil }
func (o *Add) Makes() []edit.Path   { return []edit.Path{o.Field} }
func (o *Add) Changes() []edit.Path { return nil }

// Reads returns the path of the field that the operation copies, or nil.
func (o *Add) Reads() []edit.Path {
	if o.From == nil {
		return nil
	}
	return []edit.Path{o.From}
}

func (o *Add) holds() []Holding {
	if o.Constant {
		return nil
	}
	return []Holding{{Path: o.Field, By: o}}
}

// Forms returns the form of a constant object, because the application may order its fields
// differently.
func (o *Add) Forms() []form {
	if !o.Constant || !edit.HasItems(o.Type) {
		return nil
	}
	return []form{{Fields: []Holding{{Path: o.Field, By: orderOf{o}}}, anyOrder: true}}
}

func (o *Add) Trace(p edit.Path) (edit.Path, Fate) { return TraceOneSided(p, o.Field, Clashes) }

// TraceOneSided is the Trace of an Op whose field only one side has. within is the Fate of the
// field and of paths within it.
func TraceOneSided(p, field edit.Path, within Fate) (edit.Path, Fate) {
	switch {
	case p.Under(field):
		return nil, within
	case field.Under(p):
		return p, Covers
	}
	return p, kept
}

func (o *Add) Apply(e *edit.Editor, root *edit.Node) error {
	// A copied value replaces the default only if the source field exists.
	typ, val := o.Type, o.Val
	if o.From != nil {
		from, i, err := e.Lookup(root, o.From)
		if err != nil {
			return err
		}
		if i >= 0 {
			typ, val = from.Elems[i].Type, from.Elems[i].Value()
		}
	}
	// Without the parent object there is no place for the field. Creating it would change the
	// record's meaning.
	n, err := e.Parent(root, o.Field)
	if err != nil || n == nil {
		return err
	}
	if err := Absent(n, o.Field); err != nil {
		return err
	}
	if typ != 0 {
		n.Append(edit.Elem{Type: typ, Name: o.Field.Last(), Val: val})
	}
	return nil
}

// Drop removes a field. It is the inverse of Add, and implements the operation remove. A value
// other than Val is an error if the Add is constant.
type Drop Add

func (o *Drop) String() string       { return (*Add)(o).String() }
func (o *Drop) Inverse() Op          { return (*Add)(o) }
func (o *Drop) Takes() []edit.Path   { return []edit.Path{o.Field} }
func (o *Drop) Makes() []edit.Path   { return nil }
func (o *Drop) Changes() []edit.Path { return nil }

func (o *Drop) Trace(p edit.Path) (edit.Path, Fate) { return TraceOneSided(p, o.Field, Gone) }

func (o *Drop) Apply(e *edit.Editor, root *edit.Node) error {
	if o.From != nil {
		// The reverse reads the field again, so its path must be readable.
		if _, _, err := e.Lookup(root, o.From); err != nil {
			return err
		}
	}
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 {
		return err
	}
	el := &n.Elems[i]
	// A lost value other than the constant could not come back.
	if is := (bson.RawValue{Type: el.Type, Value: el.Value()}); o.Constant && !edit.SameFields(is, bson.RawValue{Type: o.Type, Value: o.Val}) {
		return edit.Refuse(o.Field, "is %s (%s), not the constant %s, so the reverse could not restore it",
			edit.Show(el.Type, el.Value()), edit.TypeName(el.Type), edit.Show(o.Type, o.Val))
	}
	n.Remove(i)
	return nil
}

var (
	_ holder = (*Add)(nil)
	_ former = (*Add)(nil)
	_ reader = (*Add)(nil)
)
