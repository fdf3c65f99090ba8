package edit

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Prune removes the object at p if it is empty, and then each parent that becomes empty. It never
// removes an item of a list or map.
func (e *Editor) Prune(root *Node, p Path) error {
	for ; len(p) > 0 && !p.IsItem(); p = p.Parent() {
		n, i, err := e.Lookup(root, p)
		if err != nil || i < 0 {
			return err
		}
		s, err := e.sub(n, i)
		if err != nil || s == nil {
			return err
		}
		if len(s.Elems) > 0 {
			// Complement may later remove a default, the object's last field.
			s.emptying = true
			return nil
		}
		n.Remove(i)
	}
	return nil
}

// Insert appends el to the object that p's parent names, under the last part of p. It creates
// missing objects. A value that is no object, or an empty object, on the way is a Refusal: the
// reverse would remove the empty object.
func (e *Editor) Insert(root *Node, p Path, el Elem) error {
	n := root
	for depth, part := range p.Parent() {
		i, err := n.Find(part)
		if err != nil {
			return err
		}
		if i < 0 {
			// A new object has no source bytes, so Encode must write it.
			made := e.Node()
			made.Changed = true
			n.Append(Elem{Type: bson.TypeEmbeddedDocument, Name: part, Sub: made})
			n = made
			continue
		}
		here := p[:depth+1]
		s, err := e.sub(n, i)
		if err != nil {
			return err
		}
		if s == nil {
			return Refuse(here, "is a value of type %s, not an object that could hold %s", TypeName(n.Elems[i].Type), p.Last())
		}
		if len(s.Elems) == 0 && !here.IsItem() {
			// The reverse removes objects that it leaves empty.
			return Refuse(here, "is an empty object, which the reverse would mistake for one made here")
		}
		n = s
	}
	el.Name = p.Last()
	n.Append(el)
	return nil
}

// Take removes a field and returns it. It returns an error if the field is absent or occurs twice.
func (n *Node) Take(name []byte) (Elem, error) {
	i, err := n.Find(name)
	if err != nil {
		return Elem{}, err
	}
	if i < 0 {
		return Elem{}, fmt.Errorf("it has no %s", name)
	}
	el := n.Elems[i]
	n.Remove(i)
	return el, nil
}

// FloatID marks an item's _id as movable, so that RestoreOrder gives it the place that it has in
// have. A stored record has its _id first, but an item may have it anywhere.
func (e *Editor) FloatID(item *Node, have bson.Raw) error {
	h, err := e.Open(have)
	if err != nil {
		return err
	}
	was, err := h.Find(FieldID)
	if err != nil {
		return err
	}
	is, err := item.Find(FieldID)
	if err != nil || was == is || was < 0 || is < 0 {
		return err
	}
	item.Elems[is].Floating = true
	item.Changed = true
	return nil
}
