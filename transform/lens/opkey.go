package lens

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// rekey changes the _id by the key forms of the lens. It leaves the variables' values in the editor
// for keyField.
type rekey struct{ way keymap.Way }

func (o *rekey) String() string {
	src, _ := o.way.Source()
	dst, _ := o.way.Target()
	return fmt.Sprintf("key from %s to %s", src, dst)
}
func (o *rekey) inverse() op                         { return &rekey{keymap.Way{Keys: o.way.Keys, Up: !o.way.Up}} }
func (o *rekey) takes() []edit.Path                  { return nil }
func (o *rekey) makes() []edit.Path                  { return nil }
func (o *rekey) changes() []edit.Path                { return nil }
func (o *rekey) trace(p edit.Path) (edit.Path, fate) { return p, kept }

func (o *rekey) apply(e *edit.Editor, root *edit.Node) error {
	i, err := root.Find(edit.FieldID)
	if err != nil {
		return err
	}
	switch {
	// Those fields would have no value, and the record could not come back.
	case i < 0 && o.way.HasFields():
		return fmt.Errorf("the record has no _id, which fields of the other version's record are made of")
	case i < 0:
		return nil // a record without a name has none in the other version either
	}
	el := &root.Elems[i]
	values := e.Slots(len(o.way.Variables))
	if err := o.way.ReadID(bson.RawValue{Type: el.Type, Value: el.Value()}, scalar.ReadStored, values); err != nil {
		return err
	}
	// Keep the number types of the target's record: a key does not distinguish them.
	typ, val := e.Id(func(dst []byte) (bson.Type, []byte) { return o.way.AppendTarget(dst, values) })
	to := o.way.Kept(bson.RawValue{Type: typ, Value: val}, e.Have)
	root.Set(i, to.Type, to.Value)
	return nil
}

func (o *rekey) grouped()    {}
func (o *keyField) grouped() {}

// keyField reads a variable of the key from a field (take), or writes it to the field.
type keyField struct {
	keys  *keymap.Keys
	index int // of the variable
	take  bool
}

func (o *keyField) variable() *keymap.Variable { return &o.keys.Variables[o.index] }

// fieldType returns the variable's type in the field.
func (o *keyField) fieldType() scalar.IDType { return o.keys.FieldType(o.variable()) }

func (o *keyField) String() string {
	return fmt.Sprintf("key variable %s in field %s", o.variable().Name, o.variable().Field)
}
func (o *keyField) inverse() op { return &keyField{o.keys, o.index, !o.take} }

func (o *keyField) takes() []edit.Path {
	// A kept field stays on both sides, so it is neither taken nor made.
	if v := o.variable(); o.take && !v.KeepField {
		return []edit.Path{v.Field}
	}
	return nil
}

func (o *keyField) makes() []edit.Path {
	if v := o.variable(); !o.take && !v.KeepField {
		return []edit.Path{v.Field}
	}
	return nil
}

func (o *keyField) changes() []edit.Path { return nil }

func (o *keyField) trace(p edit.Path) (edit.Path, fate) {
	v := o.variable()
	switch {
	case v.KeepField:
		return p, kept
	case o.take:
		return traceOneSided(p, v.Field, gone)
	}
	return traceOneSided(p, v.Field, clashes)
}

func (o *keyField) apply(e *edit.Editor, root *edit.Node) error {
	v, values := o.variable(), e.Slots(len(o.keys.Variables))
	n, i, err := e.Lookup(root, v.Field)
	if err != nil {
		return err
	}
	// The near side must not have the field, or the reverse would lose its value.
	if !o.take && !v.KeepField {
		if i >= 0 {
			return absent(n, v.Field)
		}
		typ, val := e.Id(func(dst []byte) (bson.Type, []byte) { return o.fieldType().AppendTo(dst, values[o.index]) })
		return e.Insert(root, v.Field, edit.Elem{Type: typ, Val: val})
	}
	if i < 0 {
		return fmt.Errorf("the record has no %s, which its name in the other version holds", v.Field)
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
	_ op = (*rekey)(nil)
	_ op = (*keyField)(nil)

	_ grouped = (*rekey)(nil)
	_ grouped = (*keyField)(nil)
)

// keyOps returns the operations of the key to run before and after the other operations.
func keyOps(k *keymap.Keys) (before, after []op) {
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
			before = append(before, &keyField{k, i, true})
		} else {
			after = append(after, &keyField{k, i, false})
		}
	}
	return append(before, &rekey{keymap.Way{Keys: k, Up: true}}), after
}
