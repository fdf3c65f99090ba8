package edit

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// ItemName is ItemPart as the name of a field.
var ItemName = []byte(ItemPart)

// HasItems reports whether values of a type are lists or maps.
func HasItems(t bson.Type) bool { return t == bson.TypeArray || t == bson.TypeEmbeddedDocument }

// EachItem calls f with each item of a list or map and its index from 0, and stops at the first
// error. item is a node whose only field, ItemName, is the item. f may change the item but must not
// remove it. item is valid only during the call.
func (e *Editor) EachItem(items *Node, f func(k int, item *Node) error) error {
	// One node serves all items, one after the other.
	v := e.Node()
	for k := range items.Elems {
		if err := inItem(items, k, v, f); err != nil {
			return err
		}
	}
	return nil
}

// inItem calls f with one item, in the node v.
func inItem(items *Node, k int, v *Node, f func(k int, item *Node) error) error {
	// Lend the element to the node, and copy it back with its own name.
	el := &items.Elems[k]
	name := el.Name
	v.Elems = append(v.Elems[:0], *el)
	v.Elems[0].Name = ItemName
	v.src, v.Changed = items.src, false
	err := f(k, v)
	*el = v.Elems[0]
	el.Name = name
	items.Changed = items.Changed || v.Changed
	return err
}

var errNotTold = errors.New("nothing identifies its items, and they have fields that the other side lacks")

// itemKey returns the key of an item: its field at match for a list, its name for a map (match is
// nil). ok is false for an item without fields, which needs no key.
func (e *Editor) itemKey(items *Node, k int, item *Node, match Path) (key string, ok bool, err error) {
	switch {
	case match == nil:
		return string(items.Elems[k].Name), true, nil
	case match.IsItem():
		return "", true, nil // the only item
	}
	if item.Elems[0].Type != bson.TypeEmbeddedDocument {
		return "", false, nil
	}
	n, i, err := e.Lookup(item, match)
	if err != nil {
		return "", false, err
	}
	if i < 0 {
		return "", false, fmt.Errorf("item %s has no %s: %w", items.Elems[k].Name, match, errNotTold)
	}
	v := bson.RawValue{Type: n.Elems[i].Type, Value: n.Elems[i].Value()}
	if id, err := record.KeyOf(v); err == nil {
		return string(id), true, nil // 5 and 5.0 are equal, as they are to the database
	}
	return ValueKey(v), true, nil
}

// ItemPlaces returns the index of each item by the item's key. match is the path of the field with
// the key; nil means that the names of map entries are the keys. Items without fields have no
// entry. Two items with the same key, and an item without a key, are errors.
func (e *Editor) ItemPlaces(items *Node, match Path) (map[string]int, error) {
	places := make(map[string]int, len(items.Elems))
	err := e.EachItem(items, func(k int, item *Node) error {
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
			return fmt.Errorf("items %s and %s have the same %s: %w", items.Elems[was].Name, items.Elems[k].Name, what, errNotTold)
		}
		places[key] = k
		return nil
	})
	return places, err
}

// ItemsOf returns a function that finds the items of the list or map at list by their keys, for reading
// only. match is as in ItemPlaces. It returns nil if there is no such item, or root is nil. The item's
// index may differ from its index in the original record, because normalize may have sorted the list.
// A result is valid until the next call of the function.
func (e *Editor) ItemsOf(root *Node, list, match Path) func(key string) *Node {
	none := func(string) *Node { return nil }
	if root == nil {
		return none
	}
	n, i, err := e.Lookup(root, list)
	if err != nil || i < 0 || !HasItems(n.Elems[i].Type) {
		return none
	}
	items, err := e.OpenAt(&n.Elems[i])
	if err != nil {
		return none
	}
	if n.Elems[i].Type != bson.TypeArray {
		match = nil
	}
	places, err := e.ItemPlaces(items, match)
	if err != nil {
		return none
	}
	v := e.Node()
	return func(key string) *Node {
		k, there := places[key]
		if !there {
			return nil
		}
		v.src = items.src
		v.Elems = append(v.Elems[:0], items.Elems[k])
		v.Elems[0].Name = ItemName
		return v
	}
}

// ValueAt returns the value at p, or the zero value if it is absent. ok is false if the path leads
// through a value that a lens cannot enter.
func (e *Editor) ValueAt(root *Node, p Path) (v bson.RawValue, ok bool) {
	n, i, err := e.Lookup(root, p)
	if err != nil || i < 0 {
		return bson.RawValue{}, err == nil
	}
	return bson.RawValue{Type: n.Elems[i].Type, Value: n.Elems[i].Value()}, true
}
