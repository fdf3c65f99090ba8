package lens

import (
	"slices"
)

// complement takes the fields that the source cannot hold from what the target has. A
// field that the target's record does not have stays away: its application took it out.
func (e *editor) complement(root, have *node, fields []path) error {
	for _, p := range fields {
		n, i, err := e.lookup(root, p)
		if err != nil {
			return err
		}
		if n == nil {
			continue // the object that held it is no longer there
		}
		h, at, err := e.lookup(have, p)
		if err != nil || at < 0 {
			// What have holds on the way to p may be anything; then it has no p.
			if i >= 0 {
				n.remove(i)
				if err := e.pruneAs(root, have, p.parent()); err != nil {
					return err
				}
			}
			continue
		}
		switch held := &h.elems[at]; {
		case i >= 0:
			n.set(i, held.typ, held.val)
		default:
			n.append(elem{typ: held.typ, name: p.last(), val: held.val})
		}
	}
	return nil
}

// pruneAs removes the object at p, and those around it, if it is empty and the target
// does not have it: a default was all that it was made for.
func (e *editor) pruneAs(root, have *node, p path) error {
	for ; len(p) > 0; p = p.parent() {
		if _, at, err := e.lookup(have, p); err == nil && at >= 0 {
			return nil
		}
		n, i, err := e.lookup(root, p)
		if err != nil || i < 0 {
			return err
		}
		if s, err := e.sub(n, i); err != nil || s == nil || len(s.elems) > 0 {
			return err
		}
		n.remove(i)
	}
	return nil
}

// settle gives fields that an operation put at the end the place that they have in the
// target's record, behind the same neighbour, so that a record that was not changed
// comes out as the same bytes.
func (e *editor) settle(n, have *node) error {
	for i := range n.elems {
		s := n.elems[i].sub
		if s == nil || !s.dirty() {
			continue
		}
		at, err := have.find(n.elems[i].name)
		if err != nil || at < 0 {
			continue
		}
		h, err := e.sub(have, at)
		if err != nil || h == nil {
			continue
		}
		if err := e.settle(s, h); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(n.elems, func(el elem) bool { return el.floating }) {
		return nil
	}
	floats := make([]elem, 0, 8)
	placed := make([]elem, 0, len(n.elems))
	for _, el := range n.elems {
		if el.floating {
			floats = append(floats, el)
		} else {
			placed = append(placed, el)
		}
	}
	for i := range have.elems {
		f := named(floats, have.elems[i].name)
		if f < 0 {
			continue
		}
		at := 0
		for j := i - 1; j >= 0; j-- {
			if k := named(placed, have.elems[j].name); k >= 0 {
				at = k + 1
				break
			}
		}
		placed = slices.Insert(placed, at, floats[f])
		floats = slices.Delete(floats, f, f+1)
	}
	copy(n.elems, append(placed, floats...))
	return nil
}

func named(elems []elem, name []byte) int {
	return slices.IndexFunc(elems, func(el elem) bool { return string(el.name) == string(name) })
}
