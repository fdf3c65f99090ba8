package lens

import (
	"bytes"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// add puts a field into each record whose parent object is there; drop, its inverse,
// takes it out. What drop takes out survives on the other side as the complement, or
// is the constant.
type add struct {
	field    path
	typ      bson.Type // 0: nothing to put where the complement has nothing
	val      []byte
	constant bool
	verb     string // how the lens calls the operation
}

func (o *add) String() string { return fmt.Sprintf("%s %s", o.verb, o.field) }
func (o *add) inverse() op    { return (*drop)(o) }
func (o *add) takes() path    { return nil }
func (o *add) makes() path    { return o.field }

func (o *add) trace(p path) (path, fate) {
	switch {
	case p.under(o.field):
		return nil, clashes
	case o.field.under(p):
		return p, covers
	}
	return p, kept
}

func (o *add) apply(e *editor, root *node) error {
	n, err := e.parent(root, o.field)
	if err != nil || n == nil {
		return err
	}
	if err := absent(n, o.field); err != nil || o.typ == 0 {
		return err
	}
	n.append(elem{typ: o.typ, name: o.field.last(), val: o.val})
	return nil
}

type drop add

func (o *drop) String() string { return (*add)(o).String() }
func (o *drop) inverse() op    { return (*add)(o) }
func (o *drop) takes() path    { return o.field }
func (o *drop) makes() path    { return nil }

func (o *drop) trace(p path) (path, fate) {
	switch {
	case p.under(o.field):
		return nil, gone
	case o.field.under(p):
		return p, covers
	}
	return p, kept
}

func (o *drop) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 {
		return err
	}
	el := &n.elems[i]
	if o.constant && (el.typ != o.typ || !bytes.Equal(el.value(), o.val)) {
		return fmt.Errorf("%s is %s (%s), not the constant %s, which the other side could not give back", o.field,
			show(el.typ, el.value()), typeName(el.typ), show(o.typ, o.val))
	}
	n.remove(i)
	return nil
}

// convert changes the type of a value. An absent field and a null stay as they are.
type convert struct {
	field    path
	from, to valueType
}

func (o *convert) String() string {
	return fmt.Sprintf("convert %s from %s to %s", o.field, o.from, o.to)
}
func (o *convert) inverse() op               { return &convert{o.field, o.to, o.from} }
func (o *convert) takes() path               { return nil }
func (o *convert) makes() path               { return nil }
func (o *convert) trace(p path) (path, fate) { return traceConvert(p, o.field) }

func traceConvert(p, field path) (path, fate) {
	if p.overlaps(field) {
		return p, converted
	}
	return p, kept
}

func (o *convert) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 || n.elems[i].typ == bson.TypeNull {
		return err
	}
	el := &n.elems[i]
	if el.typ != o.from.bson() {
		return fmt.Errorf("%s is of type %s", o.field, typeName(el.typ))
	}
	val, err := e.convert(el.val, o.from, o.to)
	if err != nil {
		return fmt.Errorf("%s is %s (%s): %w", o.field, show(el.typ, el.val), typeName(el.typ), err)
	}
	n.set(i, o.to.bson(), val)
	return nil
}

// table replaces values by others, one for one.
type table struct {
	field            path
	there, back      map[string]bson.RawValue // by type byte and value
	known, knownBack string                   // the keys of each, for errors
}

func (o *table) String() string { return fmt.Sprintf("convert %s by table", o.field) }
func (o *table) inverse() op {
	return &table{o.field, o.back, o.there, o.knownBack, o.known}
}
func (o *table) takes() path               { return nil }
func (o *table) makes() path               { return nil }
func (o *table) trace(p path) (path, fate) { return traceConvert(p, o.field) }

func (o *table) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 || n.elems[i].typ == bson.TypeNull {
		return err
	}
	el := &n.elems[i]
	var buf [64]byte
	key := append(append(buf[:0], byte(el.typ)), el.value()...)
	v, ok := o.there[string(key)]
	if !ok {
		return fmt.Errorf("%s is %s (%s), which the table does not have; it has %s", o.field,
			show(el.typ, el.value()), typeName(el.typ), o.known)
	}
	n.set(i, v.Type, v.Value)
	return nil
}
