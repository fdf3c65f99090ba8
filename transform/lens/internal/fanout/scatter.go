package fanout

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// Scatter turns the entries of a field into records. It is the direction up of a fanOut, and the
// direction down of a gather.
//
// A null, an empty list and an empty map stay in the record, because without records they would
// look like an absent field. With Present, an empty list or map equals an absent one, and only null
// stays. If the target has such a value together with children, that side added the children and
// the value stays: Scatter itself never makes both. If the target has no children, the value only
// mirrored the source's field, and Scatter removes it.
type Scatter struct {
	*Fan
	Far edit.Path // path on the far side of a value that stays in the field; nil: unknown
}

func (o *Scatter) String() string        { return fmt.Sprintf("%s %s", o.Verb(), o.Field) }
func (o *Scatter) Inverse() operation.Op { return &Collect{Fan: o.Fan} }
func (o *Scatter) Takes() []edit.Path    { return []edit.Path{o.Field} }
func (o *Scatter) Makes() []edit.Path    { return nil }
func (o *Scatter) Changes() []edit.Path  { return []edit.Path{o.Field} }

func (o *Scatter) Trace(p edit.Path) (edit.Path, operation.Fate) {
	return operation.TraceOneSided(p, o.Field, operation.Gone)
}

func (o *Scatter) Apply(e *edit.Editor, root *edit.Node) error {
	if e.Group == nil {
		return errNoGroup
	}
	n, i, err := e.Lookup(root, o.Field)
	// Absent and empty mean the same, so the target may keep its empty list.
	if err == nil && i < 0 && n != nil && o.Present {
		o.keepEmpty(e.Group.Main, n)
	}
	if err != nil || i < 0 {
		return err
	}
	el := &n.Elems[i]
	if o.stays(el.Type, el.Value()) {
		if o.Present && el.Type != bson.TypeNull {
			n.Remove(i)
			o.keepEmpty(e.Group.Main, n)
		}
		return nil
	}
	if el.Type != o.As.bson() {
		return edit.Refuse(o.Field, "is of type %s, not %s", edit.TypeName(el.Type), o.As)
	}
	r, err := o.begin(e)
	if err != nil {
		return edit.Refuse(o.Field, "cannot be made records of %s: %v", o.Kind, err)
	}
	// Other fans of the lens may already have added records.
	first := len(r.g.Out)
	if o.As == AsObject {
		c := &child{typ: el.Type, val: el.Value()}
		if el.Sub != nil && el.Sub.Dirty() {
			c.item = el.Sub // it knows which fields have no final place
		}
		err = r.scatter(c, new(scattered))
	} else {
		err = r.scatterAll(el.Value())
	}
	if err != nil {
		return edit.Refuse(o.Field, "cannot be made records of %s: %v", o.Kind, err)
	}
	// One of them would silently replace the other.
	if twice, ok := repeated(r.g.Out[first:]); ok {
		return edit.Refuse(o.Field, "has two entries that would become the record %s of %s", twice.Key, o.Kind)
	}
	// Remove shifts the elements, so keep the name first.
	name := el.Name
	n.Remove(i)
	// Without children in the target, a value there only mirrors the source.
	if o.Far == nil || r.g.Main == nil || len(r.have) == 0 {
		return nil
	}
	if v, ok := edit.LookupRaw(r.g.Main, o.Far); ok && o.stays(v.Type, v.Value) {
		n.Append(edit.Elem{Type: v.Type, Name: name, Val: v.Value})
	}
	return nil
}

// keepEmpty keeps the target's empty list or map, which means the same as the source's absent or
// empty field.
func (o *Scatter) keepEmpty(main bson.Raw, n *edit.Node) {
	if o.Far == nil || main == nil {
		return
	}
	if v, ok := edit.LookupRaw(main, o.Far); ok && v.Type != bson.TypeNull && o.stays(v.Type, v.Value) {
		n.Append(edit.Elem{Type: v.Type, Name: o.Field.Last(), Val: v.Value})
	}
}

// stays reports whether a value has no entries to turn into records, and so stays in the field. An
// empty object is a record without fields.
func (f *Fan) stays(t bson.Type, val []byte) bool {
	return t == bson.TypeNull || t == f.As.bson() && len(val) == 5 && f.As != AsObject
}

func (s Shape) bson() bson.Type {
	if s == AsList {
		return bson.TypeArray
	}
	return bson.TypeEmbeddedDocument
}

// repeated finds two records with the same key.
func repeated(rs []record.Record) (record.Record, bool) {
	// Few records: comparing all pairs is faster than a map.
	if len(rs) < 16 {
		for i := range rs {
			for j := range i {
				if rs[i].Key == rs[j].Key {
					return rs[i], true
				}
			}
		}
		return record.Record{}, false
	}
	seen := make(map[record.Key]bool, len(rs))
	for _, r := range rs {
		if seen[r.Key] {
			return r, true
		}
		seen[r.Key] = true
	}
	return record.Record{}, false
}

// scattered is the state that one entry leaves for the next.
type scattered struct {
	place int64         // the last place given
	id    bson.RawValue // of the previous entry
	any   bool
}

// mostEntries is more than any database writes as one group. A field with a million small entries would
// take gigabytes of memory, to be parked in the end.
const mostEntries = 50_000

// scatterAll turns the entries of a list or map into records.
func (r *fanRun) scatterAll(val []byte) error {
	entries, err := r.e.Open(val)
	if err != nil {
		return err
	}
	if n := len(entries.Elems); n > mostEntries {
		return fmt.Errorf("it has %d entries, and at most %d can become records of one group", n, mostEntries)
	}
	r.g.Out = slices.Grow(r.g.Out, len(entries.Elems))
	var last scattered
	for i, el := range entries.Elems {
		c := child{index: i, typ: el.Type, val: el.Val}
		if r.As == AsMap {
			c.entry = el.Name
		}
		if err := r.scatter(&c, &last); err != nil {
			return fmt.Errorf("entry %s: %w", el.Name, err)
		}
	}
	return nil
}

// scatter turns one entry into a record.
func (r *fanRun) scatter(c *child, last *scattered) error {
	e := r.e
	switch {
	case r.Value != nil:
		// An entry without fields becomes the only field of its record.
		c.item = e.Node()
		c.item.Changed = true
		c.item.Elems = append(c.item.Elems, edit.Elem{Type: c.typ, Name: r.Value, Val: c.val})
	case c.typ != bson.TypeEmbeddedDocument:
		return fmt.Errorf("it is of type %s, not an object; with value, the field of the record that holds it, any type is allowed", edit.TypeName(c.typ))
	case c.item == nil:
		var err error
		if c.item, err = e.Open(c.val); err != nil {
			return err
		}
	}
	if r.Unnamed != "" {
		if err := r.name(c); err != nil {
			return err
		}
	}
	// Compute the key from the item's own fields, before the operations change them.
	if err := r.identify(c); err != nil {
		return err
	}
	if r.ID != nil {
		typ, val, err := r.part(c, r.ID)
		if err != nil {
			return err
		}
		c.id = bson.RawValue{Type: typ, Value: val}
	}
	// The list's order is not stored, so only a sorted list comes back the same.
	if r.Sorted() {
		if last.any {
			order, err := compareIDs(last.id, c.id)
			if err != nil {
				return err
			}
			if order >= 0 {
				return fmt.Errorf("its %s %s does not come after %s of the previous entry; with order, a field that holds the position, entries may have any order", r.ID, c.id, last.id)
			}
		}
		last.id, last.any = c.id, true
	}
	if slices.ContainsFunc(r.Parts, r.OwnItem) {
		// The key holds the item's _id, and the record has its own _id.
		if _, err := c.item.Take(edit.FieldID); err != nil {
			return err
		}
	}
	for _, o := range r.Fan.Scatter.Ops {
		if err := o.Apply(e, c.item); err != nil {
			return operation.RecordError(o, err)
		}
	}
	// The child keeps the fields that only its side has.
	have, found := withKey(r.have, c.key)
	if err := r.control(c, have.Doc, last); err != nil {
		return err
	}
	if found {
		if err := r.Fan.Scatter.Over(e, c.item, have.Doc); err != nil {
			return err
		}
	}
	doc := c.item.Encode(make([]byte, 0, len(c.val)+len(c.key)+64+r.Fan.Scatter.Grow))
	r.g.Out = append(r.g.Out, record.Record{Kind: r.Kind, Key: c.key, Doc: doc})
	return nil
}

// name gives an item without an _id its parent's. An item that already has that _id is an error,
// because it would come back without one.
func (r *fanRun) name(c *child) error {
	i, err := c.item.Find(edit.FieldID)
	if err != nil {
		return err
	}
	parent := r.g.IDs[r.side()].Value
	switch {
	case i < 0:
		c.item.Elems = slices.Insert(c.item.Elems, 0, edit.Elem{Type: parent.Type, Name: edit.FieldID, Val: parent.Value, Floating: true})
		c.item.Changed = true
	case edit.SameValue(parent, bson.RawValue{Type: c.item.Elems[i].Type, Value: c.item.Elems[i].Value()}):
		return fmt.Errorf("its %s equals that of its parent record, which is the default: leave it out", edit.FieldID)
	}
	return nil
}

// Sorted reports whether the list must be in the order of its ids, because neither a field nor the
// key of a child stores the place.
func (f *Fan) Sorted() bool { return f.As == AsList && f.Order == nil && !f.Indexed() }

// Indexed reports whether a child's key contains its place.
func (f *Fan) Indexed() bool {
	return slices.ContainsFunc(f.Parts, func(p KeyPart) bool { return p.Source == PartIndex })
}

// control adds the fields that tie a child to its parent, before the item's own fields.
func (r *fanRun) control(c *child, have bson.Raw, last *scattered) error {
	put := 0
	add := func(name []byte, v bson.RawValue) error {
		// The item must not have a field of this name, or collect would take it for a control
		// field.
		if i, err := c.item.Find(name); err != nil || i >= 0 {
			return cmp.Or(err, operation.Absent(c.item, edit.Path{name}))
		}
		c.item.Elems = slices.Insert(c.item.Elems, put, edit.Elem{Type: v.Type, Name: name, Val: v.Value, Floating: true})
		put++
		return nil
	}
	c.item.Changed = true
	if !r.OwnID() {
		if err := add(edit.FieldID, c.own); err != nil {
			return err
		}
	} else if i, err := c.item.Find(edit.FieldID); err != nil {
		return err
	} else if i >= 0 {
		// The database stores the _id first. An item may have it anywhere; Mongoose writes it last.
		own := c.item.Elems[i]
		c.item.Elems = slices.Insert(slices.Delete(c.item.Elems, i, i+1), 0, own)
		put = 1
	}
	if r.Parent != nil {
		if err := add(r.Parent, r.g.IDs[r.side()].Value); err != nil {
			return err
		}
	}
	if r.Entry != nil {
		name := r.e.Text(func(dst []byte) []byte { return append(dst, c.entry...) })
		if err := add(r.Entry, bson.RawValue{Type: bson.TypeString, Value: name}); err != nil {
			return err
		}
	}
	if r.Order == nil {
		return nil
	}
	return add(r.Order, r.place(have, last))
}

// OwnID reports whether an item's _id is also its record's _id.
func (f *Fan) OwnID() bool {
	if f.Key.Document || len(f.Parts) != 1 || f.Key.Types[0] == "" || f.Key.Parts[0].Alone != f.Key.Types[0] {
		return false
	}
	item := f.Parts[0].Item
	return len(item) == 1 && string(item[0]) == string(edit.FieldID)
}

// place returns a child's place in the list. It keeps the target's places while they are in order,
// so that removing an entry from the middle does not change the other records.
func (r *fanRun) place(have bson.Raw, last *scattered) bson.RawValue {
	next := int64(0)
	if last.any {
		next = last.place + 1
	}
	last.any = true
	if v, ok := edit.LookupRaw(have, edit.Path{r.Order}); ok {
		// A gap is harmless. A place that is too small would break the order.
		if at, ok := placeOf(v); ok && at >= next {
			last.place = at
			return v
		}
	}
	last.place = next
	e, at := r.e, len(r.e.Scratch)
	v := bson.RawValue{Type: bson.TypeInt32}
	if int64(int32(next)) == next {
		e.Scratch = binary.LittleEndian.AppendUint32(e.Scratch, uint32(int32(next)))
	} else {
		v.Type = bson.TypeInt64
		e.Scratch = binary.LittleEndian.AppendUint64(e.Scratch, uint64(next))
	}
	v.Value = e.Scratch[at:len(e.Scratch):len(e.Scratch)]
	return v
}

func placeOf(v bson.RawValue) (int64, bool) {
	if v.Type != bson.TypeInt32 && v.Type != bson.TypeInt64 {
		return 0, false
	}
	return v.AsInt64OK()
}

var (
	_ operation.Op = (*Scatter)(nil)
	_ operation.Op = (*Collect)(nil)
)

// Grouped marks Scatter as an operation on several records.
func (o *Scatter) Grouped() {}

var _ operation.Grouped = (*Scatter)(nil)
