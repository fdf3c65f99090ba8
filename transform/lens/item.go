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

// eachItem calls f with every item of a list or map and its place. f sees the item as
// the only field of a node of its own; it may change it, but not take it away.
func (e *editor) eachItem(items *node, f func(k int, item *node) error) error {
	v := e.node()
	for k := range items.elems {
		if err := inItem(items, k, v, f); err != nil {
			return err
		}
	}
	return nil
}

// inItem calls f with one item, in v.
func inItem(items *node, k int, v *node, f func(k int, item *node) error) error {
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

// itemKey tells an item of a list apart by its field at match, an entry of a map (match
// is nil) by its name. Only items that have fields need it: ok is false for others.
func (e *editor) itemKey(items *node, k int, item *node, match path) (key string, ok bool, err error) {
	switch {
	case match == nil:
		return string(items.elems[k].name), true, nil
	case match.isItem():
		return "", true, nil // the only one
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
		return string(id), true, nil // 5 and 5.0 are one, as they are to the database
	}
	return tableKey(v), true, nil
}

// itemPlaces returns the places of items by their keys, each of which must be there once.
func (e *editor) itemPlaces(items *node, match path) (map[string]int, error) {
	places := make(map[string]int, len(items.elems))
	err := e.eachItem(items, func(k int, item *node) error {
		key, ok, err := e.itemKey(items, k, item, match)
		if err != nil || !ok {
			return err
		}
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
