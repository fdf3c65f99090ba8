package lens

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// op is one operation in one direction. Every op has an inverse, so the way down is
// the inverses in reverse order.
type op interface {
	// String names the operation and its fields as the lens does, for errors.
	String() string
	apply(e *editor, root *node) error
	inverse() op
	// trace says where a path of the side before is on the side after.
	trace(p path) (path, fate)
	// takes and makes are the paths that a record has only before, and only after.
	takes() path
	makes() path
}

// fate is what becomes of a path.
type fate int

const (
	kept      fate = iota // the same values, perhaps under another path
	converted             // there, with other values
	covers                // what lies within it changes, or is partly elsewhere
	gone                  // the other side does not have it
	clashes               // the side before cannot have it at all
)

func typeName(t bson.Type) string {
	switch t {
	case bson.TypeInt32:
		return "int"
	case bson.TypeInt64:
		return "long"
	case bson.TypeEmbeddedDocument:
		return "object"
	case bson.TypeBoolean:
		return "bool"
	case bson.TypeDecimal128:
		return "decimal"
	case bson.TypeDateTime:
		return "date"
	case bson.TypeObjectID:
		return "objectId"
	default:
		return t.String()
	}
}

// show writes a value for an error, which is stored with the parked record: not all of
// a long one.
func show(t bson.Type, val []byte) string {
	const most = 80
	s := bson.RawValue{Type: t, Value: val}.String()
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// rename gives a field another name in its place.
type rename struct {
	from, to path // of one parent
}

func (o *rename) String() string { return fmt.Sprintf("rename %s to %s", o.from, o.to) }
func (o *rename) inverse() op    { return &rename{o.to, o.from} }
func (o *rename) takes() path    { return o.from }
func (o *rename) makes() path    { return o.to }

func (o *rename) trace(p path) (path, fate) { return traceMove(p, o.from, o.to) }

func (o *rename) apply(e *editor, root *node) error {
	n, err := e.parent(root, o.from)
	if err != nil || n == nil {
		return err
	}
	if err := absent(n, o.to); err != nil {
		return err
	}
	i, err := n.find(o.from.last())
	if err != nil || i < 0 {
		return err
	}
	n.elems[i].name, n.elems[i].end = o.to.last(), 0
	n.changed = true
	return nil
}

// absent refuses a record that has, on this side, the field that the operation makes:
// on the way back it would be taken for the one made.
func absent(n *node, p path) error {
	i, err := n.find(p.last())
	if err == nil && i >= 0 {
		err = fmt.Errorf("the record has a field %s (%s) already, which the way back would mistake for the one made here", p, typeName(n.elems[i].typ))
	}
	return err
}

func traceMove(p, from, to path) (path, fate) {
	switch {
	case p.under(from):
		return p.rebase(from, to), kept
	case p.under(to):
		return nil, clashes
	case from.under(p) || to.under(p):
		return p, covers
	}
	return p, kept
}

// move takes a field out of one object, or the record itself, into another. Objects on
// the way are made where they are missing, and removed where nothing is left in them.
type move struct {
	from, to path
}

func (o *move) String() string            { return fmt.Sprintf("move %s to %s", o.from, o.to) }
func (o *move) inverse() op               { return &move{o.to, o.from} }
func (o *move) takes() path               { return o.from }
func (o *move) makes() path               { return o.to }
func (o *move) trace(p path) (path, fate) { return traceMove(p, o.from, o.to) }

func (o *move) apply(e *editor, root *node) error {
	if n, i, err := e.lookup(root, o.to); err != nil {
		return err
	} else if i >= 0 {
		return absent(n, o.to)
	}
	n, i, err := e.lookup(root, o.from)
	if err != nil || i < 0 {
		return err
	}
	el := n.elems[i]
	n.remove(i)
	if err := e.prune(root, o.from.parent()); err != nil {
		return err
	}
	return e.insert(root, o.to, el)
}

// prune removes the object at p if it is empty, and those around it likewise.
func (e *editor) prune(root *node, p path) error {
	for ; len(p) > 0; p = p.parent() {
		n, i, err := e.lookup(root, p)
		if err != nil || i < 0 {
			return err
		}
		s, err := e.sub(n, i)
		if err != nil || s == nil || len(s.elems) > 0 {
			return err
		}
		n.remove(i)
	}
	return nil
}

// insert puts el at the end of the object that p leads to, making what is missing.
func (e *editor) insert(root *node, p path, el elem) error {
	n := root
	for depth, part := range p.parent() {
		i, err := n.find(part)
		if err != nil {
			return err
		}
		if i < 0 {
			made := e.node()
			made.changed = true
			n.append(elem{typ: bson.TypeEmbeddedDocument, name: part, sub: made})
			n = made
			continue
		}
		here := p[:depth+1]
		s, err := e.sub(n, i)
		if err != nil {
			return err
		}
		if s == nil {
			return fmt.Errorf("%s is a value of type %s, not an object that could hold %s", here, typeName(n.elems[i].typ), p.last())
		}
		if len(s.elems) == 0 {
			// The way back removes an object that it leaves empty.
			return fmt.Errorf("%s is an empty object, which the way back would mistake for one made here", here)
		}
		n = s
	}
	el.name = p.last()
	n.append(el)
	return nil
}

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

var (
	_ op = (*rename)(nil)
	_ op = (*move)(nil)
	_ op = (*add)(nil)
	_ op = (*drop)(nil)
	_ op = (*convert)(nil)
	_ op = (*table)(nil)

	errInexact = errors.New("the value cannot be converted so that the way back gives it again")
)
