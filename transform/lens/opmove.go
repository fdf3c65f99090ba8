package lens

import (
	"fmt"
)

// rename gives a field another name. The field keeps its place.
type rename struct {
	from, to path // with the same parent
}

func (o *rename) String() string  { return fmt.Sprintf("rename %s to %s", o.from, o.to) }
func (o *rename) inverse() op     { return &rename{o.to, o.from} }
func (o *rename) takes() []path   { return []path{o.from} }
func (o *rename) makes() []path   { return []path{o.to} }
func (o *rename) changes() []path { return nil }

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
	// end 0 marks the element as new. Otherwise encode would copy the old name.
	n.elems[i].name, n.elems[i].end = o.to.last(), 0
	n.changed = true
	return nil
}

// absent refuses a record that already has the field which the operation makes. The reverse would
// take it for the operation's field.
func absent(n *node, p path) error {
	i, err := n.find(p.last())
	if err == nil && i >= 0 {
		err = refuse(p, "is there already (%s), and the reverse would mistake it for the one made here", TypeName(n.elems[i].typ))
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

// move moves a field to another object. It creates missing objects on the way and removes objects
// that become empty. The record itself counts as an object.
type move struct {
	from, to path
}

func (o *move) String() string            { return fmt.Sprintf("move %s to %s", o.from, o.to) }
func (o *move) inverse() op               { return &move{o.to, o.from} }
func (o *move) takes() []path             { return []path{o.from} }
func (o *move) makes() []path             { return []path{o.to} }
func (o *move) changes() []path           { return nil }
func (o *move) trace(p path) (path, fate) { return traceMove(p, o.from, o.to) }

func (o *move) apply(e *editor, root *node) error {
	// Check the destination even if there is nothing to move: the reverse would move it.
	if n, i, err := e.lookup(root, o.to); err != nil {
		return err
	} else if i >= 0 {
		return absent(n, o.to)
	}
	n, i, err := e.lookup(root, o.from)
	if err != nil || i < 0 {
		return err
	}
	// Copy the element before remove shifts the others over it.
	el := n.elems[i]
	n.remove(i)
	if err := e.prune(root, o.from.parent()); err != nil {
		return err
	}
	return e.insert(root, o.to, el)
}
