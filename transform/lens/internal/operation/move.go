package operation

import (
	"fmt"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// Rename gives a field another name. The field keeps its object and its place in it.
type Rename struct {
	From, To edit.Path // with the same parent
}

func (o *Rename) String() string       { return fmt.Sprintf("rename %s to %s", o.From, o.To) }
func (o *Rename) Inverse() Op          { return &Rename{o.To, o.From} }
func (o *Rename) Takes() []edit.Path   { return []edit.Path{o.From} }
func (o *Rename) Makes() []edit.Path   { return []edit.Path{o.To} }
func (o *Rename) Changes() []edit.Path { return nil }

func (o *Rename) Trace(p edit.Path) (edit.Path, Fate) { return traceMove(p, o.From, o.To) }

func (o *Rename) Apply(e *edit.Editor, root *edit.Node) error {
	n, err := e.Parent(root, o.From)
	if err != nil || n == nil {
		return err
	}
	if err := Absent(n, o.To); err != nil {
		return err
	}
	i, err := n.Find(o.From.Last())
	if err != nil || i < 0 {
		return err
	}
	n.Rename(i, o.To.Last())
	return nil
}

// Absent returns a Refusal if n already has a field with the last name of p, the path that an
// operation makes. The reverse would take it for the field that the operation made.
func Absent(n *edit.Node, p edit.Path) error {
	i, err := n.Find(p.Last())
	if err == nil && i >= 0 {
		err = edit.Refuse(p, "is there already (%s), and the reverse would mistake it for the field made here", edit.TypeName(n.Elems[i].Type))
	}
	return err
}

func traceMove(p, from, to edit.Path) (edit.Path, Fate) {
	switch {
	case p.Under(from):
		return p.Rebase(from, to), kept
	case p.Under(to):
		return nil, Clashes
	case from.Under(p) || to.Under(p):
		return p, Covers
	}
	return p, kept
}

// Move moves a field to another object. It creates missing objects on the way to To, and removes
// objects that become empty at From. The record itself counts as an object.
type Move struct {
	From, To edit.Path
}

func (o *Move) String() string                      { return fmt.Sprintf("move %s to %s", o.From, o.To) }
func (o *Move) Inverse() Op                         { return &Move{o.To, o.From} }
func (o *Move) Takes() []edit.Path                  { return []edit.Path{o.From} }
func (o *Move) Makes() []edit.Path                  { return []edit.Path{o.To} }
func (o *Move) Changes() []edit.Path                { return nil }
func (o *Move) Trace(p edit.Path) (edit.Path, Fate) { return traceMove(p, o.From, o.To) }

func (o *Move) Apply(e *edit.Editor, root *edit.Node) error {
	// Check the destination even if there is nothing to move: the reverse would move it.
	if n, i, err := e.Lookup(root, o.To); err != nil {
		return err
	} else if i >= 0 {
		return Absent(n, o.To)
	}
	n, i, err := e.Lookup(root, o.From)
	if err != nil || i < 0 {
		return err
	}
	// Copy the element before Remove shifts the others over it.
	el := n.Elems[i]
	n.Remove(i)
	if err := e.Prune(root, o.From.Parent()); err != nil {
		return err
	}
	return e.Insert(root, o.To, el)
}
