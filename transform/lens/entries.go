package lens

import (
	"go.mongodb.org/mongo-driver/v2/bson"
)

// entries are those that the target has in the field now.
type entries struct {
	list   []elem
	places map[string]int // by the name of a map's entry, or the id of a list's
}

// entriesOf reads what the target has in the field.
func (r *fanRun) entriesOf(far path) (entries, error) {
	if far == nil || r.g.main == nil {
		return entries{}, nil
	}
	v, ok := lookupRaw(r.g.main, far)
	if !ok || v.Type != r.as.bson() {
		return entries{}, nil
	}
	if r.as == asObject {
		return entries{list: []elem{{typ: v.Type, val: v.Value}}}, nil
	}
	n, err := r.e.open(v.Value)
	if err != nil {
		return entries{}, err
	}
	out := entries{list: n.elems}
	if r.as != asMap && r.id == nil {
		return out, nil
	}
	out.places = make(map[string]int, len(n.elems))
	for i, el := range n.elems {
		if r.as == asMap {
			out.places[string(el.name)] = i
		} else if id, ok := lookupRaw(bson.Raw(el.val), r.id); ok && el.typ == bson.TypeEmbeddedDocument {
			out.places[tableKey(id)] = i
		}
	}
	return out, nil
}

// place is where the target has the entry of a child, -1 for nowhere. Entries that nothing
// tells apart are identified by their place.
func (h entries) place(f *fan, c *child) int {
	key := string(c.entry)
	if f.as != asMap {
		if f.id == nil {
			return c.index
		}
		key = tableKey(c.id)
	}
	if i, ok := h.places[key]; ok {
		return i
	}
	return -1
}

// of is what the target has of the entry of a child.
func (h entries) of(f *fan, c *child) (bson.Raw, bool) {
	i := h.place(f, c)
	if i < 0 || i >= len(h.list) || h.list[i].typ != bson.TypeEmbeddedDocument {
		return nil, false
	}
	return h.list[i].val, true
}
