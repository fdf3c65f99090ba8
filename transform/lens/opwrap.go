package lens

import (
	"bytes"
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// wrap turns a value into a list of one item. Absent and null fields stay.
type wrap struct {
	field path
	verb  string // the operation's name in the lens
}

// unwrap turns a list of one item into its value.
type unwrap wrap

func (o *wrap) String() string              { return o.verb + " " + o.field.String() }
func (o *wrap) inverse() op                 { return (*unwrap)(o) }
func (o *wrap) takes() []path               { return nil }
func (o *wrap) makes() []path               { return nil }
func (o *wrap) changes() []path             { return []path{o.field} }
func (o *wrap) trace(p path) (path, fate)   { return traceConvert(p, o.field) }
func (o *unwrap) String() string            { return o.verb + " " + o.field.String() }
func (o *unwrap) inverse() op               { return (*wrap)(o) }
func (o *unwrap) takes() []path             { return nil }
func (o *unwrap) makes() []path             { return nil }
func (o *unwrap) changes() []path           { return []path{o.field} }
func (o *unwrap) trace(p path) (path, fate) { return traceConvert(p, o.field) }

func (o *wrap) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 || n.elems[i].typ == bson.TypeNull {
		return err
	}
	el := &n.elems[i]
	val := el.value()
	at := len(e.scratch)
	// Length, type, the name "0" with its zero byte, the value, and the final zero byte.
	e.scratch = binary.LittleEndian.AppendUint32(e.scratch, uint32(len(val)+8))
	e.scratch = append(e.scratch, byte(el.typ), '0', 0)
	e.scratch = append(append(e.scratch, val...), 0)
	n.set(i, bson.TypeArray, e.scratch[at:len(e.scratch):len(e.scratch)])
	return nil
}

func (o *unwrap) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 || n.elems[i].typ == bson.TypeNull {
		return err
	}
	el := &n.elems[i]
	if el.typ != bson.TypeArray {
		return refuse(o.field, "is of type %s, not a list", TypeName(el.typ))
	}
	// Accept only a list that wrap would make, so that the reverse gives the same list.
	items, err := e.openAt(el)
	if err != nil {
		return err
	}
	switch {
	case len(items.elems) != 1:
		return refuse(o.field, "is a list of %d items, not of exactly one", len(items.elems))
	case items.elems[0].typ == bson.TypeNull:
		return refuse(o.field, "is a list of a null, which would come back as a null")
	case !bytes.Equal(items.elems[0].name, []byte{'0'}):
		return refuse(o.field, "is a list whose only item is not numbered 0")
	}
	n.set(i, items.elems[0].typ, items.elems[0].value())
	return nil
}

// rewrap adds the list of one to a holding's path. Its item needs no match, because it is the only
// one.
func (o *wrap) rewrap(h holding) holding {
	if !h.path.under(o.field) || h.path.equal(o.field) {
		return h
	}
	longer := func(p path) path {
		if p == nil {
			return nil
		}
		return o.field.join(path{itemName}).join(p[len(o.field):])
	}
	// at is the position of the new list among the lists on the path.
	at := o.field.items()
	out := holding{path: longer(h.path), by: h.by}
	for i, m := range h.matches {
		if i == at {
			out.matches = append(out.matches, o.field.join(path{itemName}))
		}
		if i >= at {
			m = longer(m)
		}
		out.matches = append(out.matches, m)
	}
	// The new list is the last one on the path.
	if at == len(h.matches) {
		out.matches = append(out.matches, o.field.join(path{itemName}))
	}
	return out
}

// rewrap removes the list of one from a holding's path.
func (o *unwrap) rewrap(h holding) holding {
	n := len(o.field)
	// The holding is not within the list.
	if !h.path.under(o.field) || len(h.path) == n || string(h.path[n]) != itemPart {
		return h
	}
	out := holding{path: o.field.join(h.path[n+1:]), by: h.by}
	at := o.field.items()
	for i, m := range h.matches {
		switch {
		case i == at:
			continue
		case i > at && m != nil:
			m = o.field.join(m[n+1:])
		}
		out.matches = append(out.matches, m)
	}
	return out
}

var (
	_ rewrapper = (*wrap)(nil)
	_ rewrapper = (*unwrap)(nil)
)
