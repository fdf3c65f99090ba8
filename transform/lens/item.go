package lens

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var itemName = []byte(itemPart)

// hasItems reports whether values of a type are lists or maps.
func hasItems(t bson.Type) bool { return t == bson.TypeArray || t == bson.TypeEmbeddedDocument }

// eachItem calls f with every item of a list or map, and its index. f gets the item as the only
// field of a node of its own. f may change the item and must not remove it.
func (e *editor) eachItem(items *node, f func(k int, item *node) error) error {
	// One node serves all items, one after the other.
	v := e.node()
	for k := range items.elems {
		if err := inItem(items, k, v, f); err != nil {
			return err
		}
	}
	return nil
}

// inItem calls f with one item, in the node v.
func inItem(items *node, k int, v *node, f func(k int, item *node) error) error {
	// Lend the element to the node, and copy it back with its own name.
	el := &items.elems[k]
	name := el.name
	v.elems = append(v.elems[:0], *el)
	v.elems[0].name = itemName
	v.src, v.changed = items.src, false
	err := f(k, v)
	*el = v.elems[0]
	el.name = name
	items.changed = items.changed || v.changed
	return err
}

var errNotTold = errors.New("its items cannot be told apart, and have fields that the other side does not")

// itemKey returns the key of an item: its field at match for a list, its name for a map (match is
// nil). ok is false for an item without fields, which needs no key.
func (e *editor) itemKey(items *node, k int, item *node, match path) (key string, ok bool, err error) {
	switch {
	case match == nil:
		return string(items.elems[k].name), true, nil
	case match.isItem():
		return "", true, nil // the only item
	}
	if item.elems[0].typ != bson.TypeEmbeddedDocument {
		return "", false, nil
	}
	n, i, err := e.lookup(item, match)
	if err != nil {
		return "", false, err
	}
	if i < 0 {
		return "", false, fmt.Errorf("item %s has no %s: %w", items.elems[k].name, match, errNotTold)
	}
	v := bson.RawValue{Type: n.elems[i].typ, Value: n.elems[i].value()}
	if id, err := record.KeyOf(v); err == nil {
		return string(id), true, nil // 5 and 5.0 are equal, as they are to the database
	}
	return tableKey(v), true, nil
}

// itemPlaces returns the indexes of items by key. Two items with the same key are an error.
func (e *editor) itemPlaces(items *node, match path) (map[string]int, error) {
	places := make(map[string]int, len(items.elems))
	err := e.eachItem(items, func(k int, item *node) error {
		key, ok, err := e.itemKey(items, k, item, match)
		if err != nil || !ok {
			return err
		}
		// Guessing between two items could exchange their fields.
		if was, twice := places[key]; twice {
			what := "name"
			if match != nil {
				what = match.String()
			}
			return fmt.Errorf("items %s and %s have the same %s: %w", items.elems[was].name, items.elems[k].name, what, errNotTold)
		}
		places[key] = k
		return nil
	})
	return places, err
}

// itemOf returns an item of a list by its key, for reading only. Its place may differ from its
// place in the original record, because normalize may have sorted the list.
func (e *editor) itemOf(root *node, list, match path, key string) *node {
	if root == nil {
		return nil
	}
	n, i, err := e.lookup(root, list)
	if err != nil || i < 0 || !hasItems(n.elems[i].typ) {
		return nil
	}
	items, err := e.openAt(&n.elems[i])
	if err != nil {
		return nil
	}
	if n.elems[i].typ != bson.TypeArray {
		match = nil
	}
	places, err := e.itemPlaces(items, match)
	k, there := places[key]
	if err != nil || !there {
		return nil
	}
	v := e.node()
	v.src = items.src
	v.elems = append(v.elems[:0], items.elems[k])
	v.elems[0].name = itemName
	return v
}

// valueAt reads a value, or the zero value if it is absent. ok is false if the path leads through a
// value that a lens cannot enter.
func (e *editor) valueAt(root *node, p path) (v bson.RawValue, ok bool) {
	n, i, err := e.lookup(root, p)
	if err != nil || i < 0 {
		return bson.RawValue{}, err == nil
	}
	return bson.RawValue{Type: n.elems[i].typ, Value: n.elems[i].value()}, true
}
