package edit

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Complement copies the field at p from have, the target's record. The source cannot hold this
// field. If have lacks the field, its application removed it, and Complement removes it from root
// too. matches has one path for each ItemPart of p: the field that distinguishes the items of that
// list, or nil for a map.
func (e *Editor) Complement(root, have *Node, p Path, matches []Path) error {
	if at := p.ItemAt(); at >= 0 {
		// Match the items of the first list on the path, and continue within each pair.
		matches := Within(matches, at)
		return e.PairItems(root, have, p[:at], matches[0], func(_ string, item, haveItem *Node) error {
			return e.Complement(item, haveItem, p[at:], matches[1:])
		})
	}
	n, i, err := e.Lookup(root, p)
	if err != nil {
		return err
	}
	if n == nil {
		return nil // the object of the field no longer exists
	}
	h, at, err := e.Lookup(have, p)
	if err != nil || at < 0 {
		// A value that is no object on the path in have also means that the field is absent.
		if i >= 0 {
			n.Remove(i)
			return e.pruneMoved(root, p.Parent())
		}
		return nil
	}
	switch held := &h.Elems[at]; {
	case i >= 0:
		n.Set(i, held.Type, held.Val)
	default:
		n.Append(Elem{Type: held.Type, Name: p.Last(), Val: held.Val})
	}
	return nil
}

// RestoreItems calls RestoreOrder for each item on the path p that the target also has. It matches
// items by their keys, not by their places. matches is as in Complement.
func (e *Editor) RestoreItems(root, have *Node, p Path, matches []Path) error {
	at := p.ItemAt()
	if at < 0 {
		return nil
	}
	matches = Within(matches, at)
	return e.PairItems(root, have, p[:at], matches[0], func(_ string, item, haveItem *Node) error {
		if err := e.RestoreItems(item, haveItem, p[at:], matches[1:]); err != nil {
			return err
		}
		return e.RestoreOrder(item, haveItem)
	})
}

// Within returns each path without its first at parts, so that it begins with the ItemPart at that
// index. A nil path stays nil.
func Within(paths []Path, at int) []Path {
	out := make([]Path, len(paths))
	for i, p := range paths {
		if p != nil {
			out[i] = p[at:]
		}
	}
	return out
}

// PairItems calls f for each item of the list or map at list that have also holds, with the key
// that both share. match is as in ItemPlaces. PairItems skips the other items: they are new and
// keep the values that the operations made.
func (e *Editor) PairItems(root, have *Node, list, match Path, f func(key string, item, haveItem *Node) error) error {
	n, i, err := e.Lookup(root, list)
	if err != nil || i < 0 {
		return err
	}
	h, at, err := e.Lookup(have, list)
	if err != nil || at < 0 || h.Elems[at].Type != n.Elems[i].Type || !HasItems(n.Elems[i].Type) {
		return nil // all items are new
	}
	items, err := e.OpenAt(&n.Elems[i])
	if err != nil {
		return err
	}
	haveItems, err := e.OpenAt(&h.Elems[at])
	if err != nil {
		return err
	}
	// Entries of a map always match by name.
	if n.Elems[i].Type != bson.TypeArray {
		match = nil
	}
	// The target's items must be distinguishable, or an item could get another item's fields.
	places, err := e.ItemPlaces(haveItems, match)
	if err != nil {
		return Refuse(list, "%w", err)
	}
	v := e.Node()
	return e.EachItem(items, func(k int, item *Node) error {
		key, ok, err := e.itemKey(items, k, item, match)
		if err != nil {
			return Refuse(list, "%w", err)
		}
		at, known := places[key]
		if !ok || !known {
			return nil
		}
		return inItem(haveItems, at, v, func(_ int, haveItem *Node) error { return f(key, item, haveItem) })
	})
}

// pruneMoved removes the object at p if it is empty, and then its empty parents. Operations moved
// its other fields away, and only a default kept it.
func (e *Editor) pruneMoved(root *Node, p Path) error {
	for depth := 0; len(p) > 0 && !p.IsItem(); depth++ {
		n, i, err := e.Lookup(root, p)
		if err != nil || i < 0 {
			return err
		}
		s, err := e.sub(n, i)
		if err != nil || s == nil || len(s.Elems) > 0 || depth == 0 && !s.emptying {
			return err
		}
		n.Remove(i)
		p = p.Parent()
	}
	return nil
}

// RestoreOrder moves each field that an operation appended to the place that it has in have, the
// target's record: behind the same neighbour. Without it, an unchanged record would get other
// bytes.
func (e *Editor) RestoreOrder(n, have *Node) error {
	find := have.finder()
	for i := range n.Elems {
		s := n.Elems[i].Sub
		// The operations did not change this object, so its order stays.
		if s == nil || !s.Dirty() {
			continue
		}
		at := find(n.Elems[i].Name)
		if at < 0 || !HasItems(have.Elems[at].Type) {
			continue
		}
		h, err := e.OpenAt(&have.Elems[at])
		if err != nil {
			continue // the operations replace the malformed value
		}
		if err := e.RestoreOrder(s, h); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(n.Elems, func(el Elem) bool { return el.Floating }) {
		return nil
	}
	// Separate the fields with a fixed place from the appended ones.
	floats := make([]Elem, 0, 8)
	placed := make([]Elem, 0, len(n.Elems))
	for _, el := range n.Elems {
		if el.Floating {
			floats = append(floats, el)
		} else {
			placed = append(placed, el)
		}
	}
	for i := range have.Elems {
		f := named(floats, have.Elems[i].Name)
		if f < 0 {
			continue
		}
		at := 0
		// Insert it behind the nearest earlier field that the record also has.
		for j := i - 1; j >= 0; j-- {
			if k := named(placed, have.Elems[j].Name); k >= 0 {
				at = k + 1
				break
			}
		}
		placed = slices.Insert(placed, at, floats[f])
		placed[at].Floating = false
		floats = slices.Delete(floats, f, f+1)
	}
	// The fields that the target lacks stay at the end.
	copy(n.Elems, append(placed, floats...))
	return nil
}

func named(elems []Elem, name []byte) int {
	return slices.IndexFunc(elems, func(el Elem) bool { return string(el.Name) == string(name) })
}
