package lens

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// prune removes the object at p if it is empty, and then its empty parents. It never removes an
// item.
func (e *editor) prune(root *node, p path) error {
	for ; len(p) > 0 && !p.isItem(); p = p.parent() {
		n, i, err := e.lookup(root, p)
		if err != nil || i < 0 {
			return err
		}
		s, err := e.sub(n, i)
		if err != nil || s == nil {
			return err
		}
		if len(s.elems) > 0 {
			// complement may later remove a default, the object's last field.
			s.emptying = true
			return nil
		}
		n.remove(i)
	}
	return nil
}

// insert puts el at the end of the object at p's parent, and creates missing objects.
func (e *editor) insert(root *node, p path, el elem) error {
	n := root
	for depth, part := range p.parent() {
		i, err := n.find(part)
		if err != nil {
			return err
		}
		if i < 0 {
			// A new object has no source bytes, so encode must write it.
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
			return refuse(here, "is a value of type %s, not an object that could hold %s", TypeName(n.elems[i].typ), p.last())
		}
		if len(s.elems) == 0 && !here.isItem() {
			// The reverse removes objects that it leaves empty.
			return refuse(here, "is an empty object, which the reverse would mistake for one made here")
		}
		n = s
	}
	el.name = p.last()
	n.append(el)
	return nil
}

// take removes a field that must be present, and returns it.
func (n *node) take(name []byte) (elem, error) {
	i, err := n.find(name)
	if err != nil {
		return elem{}, err
	}
	if i < 0 {
		return elem{}, fmt.Errorf("it has no %s", name)
	}
	el := n.elems[i]
	n.remove(i)
	return el, nil
}

// floatID lets an item's _id move to its place in the target's value. A stored record has its _id
// first; an item may have it anywhere.
func (e *editor) floatID(item *node, have bson.Raw) error {
	h, err := e.open(have)
	if err != nil {
		return err
	}
	was, err := h.find(fieldID)
	if err != nil {
		return err
	}
	is, err := item.find(fieldID)
	if err != nil || was == is || was < 0 || is < 0 {
		return err
	}
	item.elems[is].floating = true
	item.changed = true
	return nil
}
