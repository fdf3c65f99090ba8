package operation

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Rekey changes the _id from one form of the lens's key to the other. It leaves the values of the
// variables in the editor (Slots), where KeyField finds them.
type Rekey struct{ Way keymap.Way }

func (o *Rekey) String() string {
	src, _ := o.Way.Source()
	dst, _ := o.Way.Target()
	return fmt.Sprintf("key from %s to %s", src, dst)
}
func (o *Rekey) Inverse() Op                         { return &Rekey{keymap.Way{Keys: o.Way.Keys, Up: !o.Way.Up}} }
func (o *Rekey) Takes() []edit.Path                  { return nil }
func (o *Rekey) Makes() []edit.Path                  { return nil }
func (o *Rekey) Changes() []edit.Path                { return nil }
func (o *Rekey) Trace(p edit.Path) (edit.Path, Fate) { return p, kept }

func (o *Rekey) Apply(e *edit.Editor, root *edit.Node) error {
	i, err := root.Find(edit.FieldID)
	if err != nil {
		return err
	}
	switch {
	// Those fields would have no value, and the record could not come back.
	case i < 0 && o.Way.HasFields():
		return fmt.Errorf("the record has no _id, from which fields of the other version are made")
	case i < 0:
		return nil // a record without a name has none in the other version either
	}
	el := &root.Elems[i]
	values := e.Slots(len(o.Way.Variables))
	if err := o.Way.ReadID(bson.RawValue{Type: el.Type, Value: el.Value()}, scalar.ReadStored, values); err != nil {
		return err
	}
	// Keep the number types of the target's record: a key does not distinguish them.
	typ, val := e.Id(func(dst []byte) (bson.Type, []byte) { return o.Way.AppendTarget(dst, values) })
	to := o.Way.Kept(bson.RawValue{Type: typ, Value: val}, e.Have)
	root.Set(i, to.Type, to.Value)
	return nil
}

// Grouped marks an operation that needs the name on the other side.
func (o *Rekey) Grouped() {}

// Grouped marks an operation that needs the name on the other side.
func (o *KeyField) Grouped() {}

// KeyField moves the value of one variable of the key between a field and the editor's Slots. In
// one direction it reads the field, before Rekey runs. In the other it writes the field, after
// Rekey.
type KeyField struct {
	keys  *keymap.Keys
	index int // of the variable
	take  bool
}

func (o *KeyField) variable() *keymap.Variable { return &o.keys.Variables[o.index] }

// fieldType returns the variable's type in the field.
func (o *KeyField) fieldType() scalar.IDType { return o.keys.FieldType(o.variable()) }

func (o *KeyField) String() string {
	return fmt.Sprintf("key variable %s in field %s", o.variable().Name, o.variable().Field)
}
func (o *KeyField) Inverse() Op { return &KeyField{o.keys, o.index, !o.take} }

func (o *KeyField) Takes() []edit.Path {
	// A kept field stays on both sides, so it is neither taken nor made.
	if v := o.variable(); o.take && !v.KeepField {
		return []edit.Path{v.Field}
	}
	return nil
}

func (o *KeyField) Makes() []edit.Path {
	if v := o.variable(); !o.take && !v.KeepField {
		return []edit.Path{v.Field}
	}
	return nil
}

func (o *KeyField) Changes() []edit.Path { return nil }

func (o *KeyField) Trace(p edit.Path) (edit.Path, Fate) {
	v := o.variable()
	switch {
	case v.KeepField:
		return p, kept
	case o.take:
		return TraceOneSided(p, v.Field, Gone)
	}
	return TraceOneSided(p, v.Field, Clashes)
}

func (o *KeyField) Apply(e *edit.Editor, root *edit.Node) error {
	v, values := o.variable(), e.Slots(len(o.keys.Variables))
	n, i, err := e.Lookup(root, v.Field)
	if err != nil {
		return err
	}
	// The near side must not have the field, or the reverse would lose its value.
	if !o.take && !v.KeepField {
		if i >= 0 {
			return Absent(n, v.Field)
		}
		typ, val := e.Id(func(dst []byte) (bson.Type, []byte) { return o.fieldType().AppendTo(dst, values[o.index]) })
		return e.Insert(root, v.Field, edit.Elem{Type: typ, Val: val})
	}
	if i < 0 {
		return fmt.Errorf("the record has no %s, which is part of its name in the other version", v.Field)
	}
	el := &n.Elems[i]
	value, err := o.fieldType().Read(bson.RawValue{Type: el.Type, Value: el.Value()}, scalar.ReadExact)
	if err != nil {
		return fmt.Errorf("%s %w", v.Field, err)
	}
	if !o.take {
		// With keep, the field stays on both sides, so it must agree with the key.
		if value != values[o.index] {
			return fmt.Errorf("%s is %q, and the record's name has %q", v.Field, keymap.Shortened(value), keymap.Shortened(values[o.index]))
		}
		return nil
	}
	// Refuse a value that the key of the other side could not represent.
	if err := v.Take(value); err != nil {
		return err
	}
	values[o.index] = value
	if v.KeepField {
		return nil
	}
	n.Remove(i)
	return e.Prune(root, v.Field.Parent())
}

var (
	_ Op = (*Rekey)(nil)
	_ Op = (*KeyField)(nil)

	_ Grouped = (*Rekey)(nil)
	_ Grouped = (*KeyField)(nil)
)

// KeyOps returns the operations of the key, for the direction from old to new: the ones to run
// before the other operations, and the ones to run after them. Without keys (nil) there are none.
func KeyOps(k *keymap.Keys) (before, after []Op) {
	if k == nil {
		return nil, nil
	}
	for i, v := range k.Variables {
		if v.Field == nil {
			continue
		}
		// A variable of to comes from a field of the old record; a variable of from goes to a field
		// of the new one.
		if slices.Contains(k.To.Variables, v.Name) {
			before = append(before, &KeyField{k, i, true})
		} else {
			after = append(after, &KeyField{k, i, false})
		}
	}
	return append(before, &Rekey{keymap.Way{Keys: k, Up: true}}), after
}
