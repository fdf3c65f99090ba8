package fanout

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// entries holds the entries that the target's field has now.
type entries struct {
	list   []edit.Elem
	places map[string]int // by a map entry's name, or a list item's id
}

// entriesOf reads the target's present entries of the field.
func (r *fanRun) entriesOf(far edit.Path) (entries, error) {
	if far == nil || r.g.Main == nil {
		return entries{}, nil
	}
	v, ok := edit.LookupRaw(r.g.Main, far)
	// The target has another value there, so no entry of it can match.
	if !ok || v.Type != r.As.bson() {
		return entries{}, nil
	}
	if r.As == AsObject {
		return entries{list: []edit.Elem{{Type: v.Type, Val: v.Value}}}, nil
	}
	n, err := r.e.Open(v.Value)
	if err != nil {
		return entries{}, err
	}
	out := entries{list: n.Elems}
	// Without an id, entries match by index.
	if r.As != AsMap && r.ID == nil {
		return out, nil
	}
	out.places = make(map[string]int, len(n.Elems))
	for i, el := range n.Elems {
		if r.As == AsMap {
			out.places[string(el.Name)] = i
		} else if id, ok := edit.LookupRaw(bson.Raw(el.Val), r.ID); ok && el.Type == bson.TypeEmbeddedDocument {
			out.places[edit.ValueKey(id)] = i
		}
	}
	return out, nil
}

// place returns the index of a child's entry in the target, or -1. Entries that nothing
// distinguishes are identified by their index.
func (h entries) place(f *Fan, c *child) int {
	key := string(c.entry)
	if f.As != AsMap {
		if f.ID == nil {
			return c.index
		}
		key = edit.ValueKey(c.id)
	}
	if i, ok := h.places[key]; ok {
		return i
	}
	return -1
}

// of returns the target's entry of a child.
func (h entries) of(f *Fan, c *child) (bson.Raw, bool) {
	i := h.place(f, c)
	if i < 0 || i >= len(h.list) || h.list[i].Type != bson.TypeEmbeddedDocument {
		return nil, false
	}
	return h.list[i].Val, true
}
