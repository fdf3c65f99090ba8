package operation

import (
	"bytes"
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// Wrap turns a value into a list of one item. Its inverse is Unwrap. Absent and null fields stay.
type Wrap struct {
	Field edit.Path
	Verb  string // the operation's name in the lens
}

// Unwrap turns a list of one item into its value. It refuses other lists, and a list of one null.
// Absent and null fields stay.
type Unwrap Wrap

func (o *Wrap) String() string                        { return o.Verb + " " + o.Field.String() }
func (o *Wrap) Inverse() Op                           { return (*Unwrap)(o) }
func (o *Wrap) Takes() []edit.Path                    { return nil }
func (o *Wrap) Makes() []edit.Path                    { return nil }
func (o *Wrap) Changes() []edit.Path                  { return []edit.Path{o.Field} }
func (o *Wrap) Trace(p edit.Path) (edit.Path, Fate)   { return TraceConvert(p, o.Field) }
func (o *Unwrap) String() string                      { return o.Verb + " " + o.Field.String() }
func (o *Unwrap) Inverse() Op                         { return (*Wrap)(o) }
func (o *Unwrap) Takes() []edit.Path                  { return nil }
func (o *Unwrap) Makes() []edit.Path                  { return nil }
func (o *Unwrap) Changes() []edit.Path                { return []edit.Path{o.Field} }
func (o *Unwrap) Trace(p edit.Path) (edit.Path, Fate) { return TraceConvert(p, o.Field) }

func (o *Wrap) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
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

func (o *Unwrap) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	if el.Type != bson.TypeArray {
		return edit.Refuse(o.Field, "is of type %s, not a list", edit.TypeName(el.Type))
	}
	// Accept only a list that wrap would make, so that the reverse gives the same list.
	items, err := e.OpenAt(el)
	if err != nil {
		return err
	}
	switch {
	case len(items.Elems) != 1:
		return edit.Refuse(o.Field, "is a list of %d items, not of exactly one", len(items.Elems))
	case items.Elems[0].Type == bson.TypeNull:
		return edit.Refuse(o.Field, "is a list of a null, which would come back as a null")
	case !bytes.Equal(items.Elems[0].Name, []byte{'0'}):
		return edit.Refuse(o.Field, "is a list whose only item is not numbered 0")
	}
	n.Set(i, items.Elems[0].Type, items.Elems[0].Value())
	return nil
}

// rewrap adds the list of one to a holding's path. Its item needs no match, because it is the only
// one.
func (o *Wrap) rewrap(h Holding) Holding {
	if !h.Path.Under(o.Field) || h.Path.Equal(o.Field) {
		return h
	}
	longer := func(p edit.Path) edit.Path {
		if p == nil {
			return nil
		}
		return o.Field.Join(edit.Path{edit.ItemName}).Join(p[len(o.Field):])
	}
	// at is the position of the new list among the lists on the path.
	at := o.Field.Items()
	out := Holding{Path: longer(h.Path), By: h.By}
	for i, m := range h.matches {
		if i == at {
			out.matches = append(out.matches, o.Field.Join(edit.Path{edit.ItemName}))
		}
		if i >= at {
			m = longer(m)
		}
		out.matches = append(out.matches, m)
	}
	// The new list is the last one on the path.
	if at == len(h.matches) {
		out.matches = append(out.matches, o.Field.Join(edit.Path{edit.ItemName}))
	}
	return out
}

// rewrap removes the list of one from a holding's path.
func (o *Unwrap) rewrap(h Holding) Holding {
	n := len(o.Field)
	// The holding is not within the list.
	if !h.Path.Under(o.Field) || len(h.Path) == n || string(h.Path[n]) != edit.ItemPart {
		return h
	}
	out := Holding{Path: o.Field.Join(h.Path[n+1:]), By: h.By}
	at := o.Field.Items()
	for i, m := range h.matches {
		switch {
		case i == at:
			continue
		case i > at && m != nil:
			m = o.Field.Join(m[n+1:])
		}
		out.matches = append(out.matches, m)
	}
	return out
}

var (
	_ rewrapper = (*Wrap)(nil)
	_ rewrapper = (*Unwrap)(nil)
)
