package lens

import (
	"fmt"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// rename gives a field another name. The field keeps its place.
type rename struct {
	from, to edit.Path // with the same parent
}

func (o *rename) String() string       { return fmt.Sprintf("rename %s to %s", o.from, o.to) }
func (o *rename) inverse() op          { return &rename{o.to, o.from} }
func (o *rename) takes() []edit.Path   { return []edit.Path{o.from} }
func (o *rename) makes() []edit.Path   { return []edit.Path{o.to} }
func (o *rename) changes() []edit.Path { return nil }

func (o *rename) trace(p edit.Path) (edit.Path, fate) { return traceMove(p, o.from, o.to) }

func (o *rename) apply(e *edit.Editor, root *edit.Node) error {
	n, err := e.Parent(root, o.from)
	if err != nil || n == nil {
		return err
	}
	if err := absent(n, o.to); err != nil {
		return err
	}
	i, err := n.Find(o.from.Last())
	if err != nil || i < 0 {
		return err
	}
	n.Rename(i, o.to.Last())
	return nil
}

// absent refuses a record that already has the field which the operation makes. The reverse would
// take it for the operation's field.
func absent(n *edit.Node, p edit.Path) error {
	i, err := n.Find(p.Last())
	if err == nil && i >= 0 {
		err = edit.Refuse(p, "is there already (%s), and the reverse would mistake it for the one made here", edit.TypeName(n.Elems[i].Type))
	}
	return err
}

func traceMove(p, from, to edit.Path) (edit.Path, fate) {
	switch {
	case p.Under(from):
		return p.Rebase(from, to), kept
	case p.Under(to):
		return nil, clashes
	case from.Under(p) || to.Under(p):
		return p, covers
	}
	return p, kept
}

// move moves a field to another object. It creates missing objects on the way and removes objects
// that become empty. The record itself counts as an object.
type move struct {
	from, to edit.Path
}

func (o *move) String() string                      { return fmt.Sprintf("move %s to %s", o.from, o.to) }
func (o *move) inverse() op                         { return &move{o.to, o.from} }
func (o *move) takes() []edit.Path                  { return []edit.Path{o.from} }
func (o *move) makes() []edit.Path                  { return []edit.Path{o.to} }
func (o *move) changes() []edit.Path                { return nil }
func (o *move) trace(p edit.Path) (edit.Path, fate) { return traceMove(p, o.from, o.to) }

func (o *move) apply(e *edit.Editor, root *edit.Node) error {
	// Check the destination even if there is nothing to move: the reverse would move it.
	if n, i, err := e.Lookup(root, o.to); err != nil {
		return err
	} else if i >= 0 {
		return absent(n, o.to)
	}
	n, i, err := e.Lookup(root, o.from)
	if err != nil || i < 0 {
		return err
	}
	// Copy the element before remove shifts the others over it.
	el := n.Elems[i]
	n.Remove(i)
	if err := e.Prune(root, o.from.Parent()); err != nil {
		return err
	}
	return e.Insert(root, o.to, el)
}
