package lens

import (
	"bytes"
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// wrap turns a value into a list of one item. Absent and null fields stay.
type wrap struct {
	field edit.Path
	verb  string // the operation's name in the lens
}

// unwrap turns a list of one item into its value.
type unwrap wrap

func (o *wrap) String() string                        { return o.verb + " " + o.field.String() }
func (o *wrap) inverse() op                           { return (*unwrap)(o) }
func (o *wrap) takes() []edit.Path                    { return nil }
func (o *wrap) makes() []edit.Path                    { return nil }
func (o *wrap) changes() []edit.Path                  { return []edit.Path{o.field} }
func (o *wrap) trace(p edit.Path) (edit.Path, fate)   { return traceConvert(p, o.field) }
func (o *unwrap) String() string                      { return o.verb + " " + o.field.String() }
func (o *unwrap) inverse() op                         { return (*wrap)(o) }
func (o *unwrap) takes() []edit.Path                  { return nil }
func (o *unwrap) makes() []edit.Path                  { return nil }
func (o *unwrap) changes() []edit.Path                { return []edit.Path{o.field} }
func (o *unwrap) trace(p edit.Path) (edit.Path, fate) { return traceConvert(p, o.field) }

func (o *wrap) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	val := el.Value()
	at := len(e.Scratch)
	// Length, type, the name "0" with its zero byte, the value, and the final zero byte.
	e.Scratch = binary.LittleEndian.AppendUint32(e.Scratch, uint32(len(val)+8))
	e.Scratch = append(e.Scratch, byte(el.Type), '0', 0)
	e.Scratch = append(append(e.Scratch, val...), 0)
	n.Set(i, bson.TypeArray, e.Scratch[at:len(e.Scratch):len(e.Scratch)])
	return nil
}

func (o *unwrap) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	if el.Type != bson.TypeArray {
		return edit.Refuse(o.field, "is of type %s, not a list", edit.TypeName(el.Type))
	}
	// Accept only a list that wrap would make, so that the reverse gives the same list.
	items, err := e.OpenAt(el)
	if err != nil {
		return err
	}
	switch {
	case len(items.Elems) != 1:
		return edit.Refuse(o.field, "is a list of %d items, not of exactly one", len(items.Elems))
	case items.Elems[0].Type == bson.TypeNull:
		return edit.Refuse(o.field, "is a list of a null, which would come back as a null")
	case !bytes.Equal(items.Elems[0].Name, []byte{'0'}):
		return edit.Refuse(o.field, "is a list whose only item is not numbered 0")
	}
	n.Set(i, items.Elems[0].Type, items.Elems[0].Value())
	return nil
}

// rewrap adds the list of one to a holding's path. Its item needs no match, because it is the only
// one.
func (o *wrap) rewrap(h holding) holding {
	if !h.path.Under(o.field) || h.path.Equal(o.field) {
		return h
	}
	longer := func(p edit.Path) edit.Path {
		if p == nil {
			return nil
		}
		return o.field.Join(edit.Path{edit.ItemName}).Join(p[len(o.field):])
	}
	// at is the position of the new list among the lists on the path.
	at := o.field.Items()
	out := holding{path: longer(h.path), by: h.by}
	for i, m := range h.matches {
		if i == at {
			out.matches = append(out.matches, o.field.Join(edit.Path{edit.ItemName}))
		}
		if i >= at {
			m = longer(m)
		}
		out.matches = append(out.matches, m)
	}
	// The new list is the last one on the path.
	if at == len(h.matches) {
		out.matches = append(out.matches, o.field.Join(edit.Path{edit.ItemName}))
	}
	return out
}

// rewrap removes the list of one from a holding's path.
func (o *unwrap) rewrap(h holding) holding {
	n := len(o.field)
	// The holding is not within the list.
	if !h.path.Under(o.field) || len(h.path) == n || string(h.path[n]) != edit.ItemPart {
		return h
	}
	out := holding{path: o.field.Join(h.path[n+1:]), by: h.by}
	at := o.field.Items()
	for i, m := range h.matches {
		switch {
		case i == at:
			continue
		case i > at && m != nil:
			m = o.field.Join(m[n+1:])
		}
		out.matches = append(out.matches, m)
	}
	return out
}

var (
	_ rewrapper = (*wrap)(nil)
	_ rewrapper = (*unwrap)(nil)
)
