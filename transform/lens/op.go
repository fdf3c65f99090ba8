package lens

import (
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

var (
	_ op = (*rename)(nil)
	_ op = (*move)(nil)
	_ op = (*add)(nil)
	_ op = (*drop)(nil)
	_ op = (*convert)(nil)
	_ op = (*table)(nil)

	errInexact = errors.New("the value cannot be converted so that the way back gives it again")
)
