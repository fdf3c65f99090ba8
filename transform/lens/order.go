package lens

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// complement takes a field that the source cannot hold from the target's record. If the target's
// record does not have the field, its application removed it, and the field stays away. matches
// distinguish the items of lists (holding).
func (e *editor) complement(root, have *node, p path, matches []path) error {
	if at := p.itemAt(); at >= 0 {
		// Match the items of the first list on the path, and continue within each pair.
		matches := within(matches, at)
		return e.pairItems(root, have, p[:at], matches[0], func(_ string, item, haveItem *node) error {
			return e.complement(item, haveItem, p[at:], matches[1:])
		})
	}
	n, i, err := e.lookup(root, p)
	if err != nil {
		return err
	}
	if n == nil {
		return nil // the object of the field no longer exists
	}
	h, at, err := e.lookup(have, p)
	if err != nil || at < 0 {
		// A value that is no object on the path in have also means that the field is absent.
		if i >= 0 {
			n.remove(i)
			return e.pruneMoved(root, p.parent())
		}
		return nil
	}
	switch held := &h.elems[at]; {
	case i >= 0:
		n.set(i, held.typ, held.val)
	default:
		n.append(elem{typ: held.typ, name: p.last(), val: held.val})
	}
	return nil
}

// restoreItems is restoreOrder for the items on the path p. It matches items by their keys, not by
// their places.
func (e *editor) restoreItems(root, have *node, p path, matches []path) error {
	at := p.itemAt()
	if at < 0 {
		return nil
	}
	matches = within(matches, at)
	return e.pairItems(root, have, p[:at], matches[0], func(_ string, item, haveItem *node) error {
		if err := e.restoreItems(item, haveItem, p[at:], matches[1:]); err != nil {
			return err
		}
		return e.restoreOrder(item, haveItem)
	})
}

// within returns paths relative to the item at p[at].
func within(paths []path, at int) []path {
	out := make([]path, len(paths))
	for i, p := range paths {
		if p != nil {
			out[i] = p[at:]
		}
	}
	return out
}

// pairItems calls f with each item of list that the target also has, and the key of both. All other
// items are new and keep the values from the operations.
func (e *editor) pairItems(root, have *node, list, match path, f func(key string, item, haveItem *node) error) error {
	n, i, err := e.lookup(root, list)
	if err != nil || i < 0 {
		return err
	}
	h, at, err := e.lookup(have, list)
	if err != nil || at < 0 || h.elems[at].typ != n.elems[i].typ || !hasItems(n.elems[i].typ) {
		return nil // all items are new
	}
	items, err := e.openAt(&n.elems[i])
	if err != nil {
		return err
	}
	haveItems, err := e.openAt(&h.elems[at])
	if err != nil {
		return err
	}
	// Entries of a map always match by name.
	if n.elems[i].typ != bson.TypeArray {
		match = nil
	}
	// The target's items must be distinguishable, or an item could get another item's fields.
	places, err := e.itemPlaces(haveItems, match)
	if err != nil {
		return refuse(list, "%w", err)
	}
	v := e.node()
	return e.eachItem(items, func(k int, item *node) error {
		key, ok, err := e.itemKey(items, k, item, match)
		if err != nil {
			return refuse(list, "%w", err)
		}
		at, known := places[key]
		if !ok || !known {
			return nil
		}
		return inItem(haveItems, at, v, func(_ int, haveItem *node) error { return f(key, item, haveItem) })
	})
}

// pruneMoved removes the object at p if it is empty, and then its empty parents. Operations moved
// its other fields away, and only a default kept it.
func (e *editor) pruneMoved(root *node, p path) error {
	for depth := 0; len(p) > 0 && !p.isItem(); depth++ {
		n, i, err := e.lookup(root, p)
		if err != nil || i < 0 {
			return err
		}
		s, err := e.sub(n, i)
		if err != nil || s == nil || len(s.elems) > 0 || depth == 0 && !s.emptying {
			return err
		}
		n.remove(i)
		p = p.parent()
	}
	return nil
}

// restoreOrder gives fields that an operation appended the place that they have in the target's
// record, behind the same neighbour. Without it, an unchanged record would get other bytes.
func (e *editor) restoreOrder(n, have *node) error {
	for i := range n.elems {
		s := n.elems[i].sub
		// The operations did not change this object, so its order stays.
		if s == nil || !s.dirty() {
			continue
		}
		at, err := have.find(n.elems[i].name)
		if err != nil || at < 0 || !hasItems(have.elems[at].typ) {
			continue
		}
		h, err := e.openAt(&have.elems[at])
		if err != nil {
			continue // the operations replace the malformed value
		}
		if err := e.restoreOrder(s, h); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(n.elems, func(el elem) bool { return el.floating }) {
		return nil
	}
	// Separate the fields with a fixed place from the appended ones.
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
		// Insert it behind the nearest earlier field that the record also has.
		for j := i - 1; j >= 0; j-- {
			if k := named(placed, have.elems[j].name); k >= 0 {
				at = k + 1
				break
			}
		}
		placed = slices.Insert(placed, at, floats[f])
		placed[at].floating = false
		floats = slices.Delete(floats, f, f+1)
	}
	// The fields that the target lacks stay at the end.
	copy(n.elems, append(placed, floats...))
	return nil
}

func named(elems []elem, name []byte) int {
	return slices.IndexFunc(elems, func(el elem) bool { return string(el.name) == string(name) })
}
