package fanout

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Collect turns the children of a record into one of its fields. It is the direction up of a
// gather, and the direction down of a fanOut. A child that contradicts its parent or its key is a
// Refusal.
type Collect struct {
	*Fan
	Far edit.Path // path of the field on the far side; nil: unknown
}

func (o *Collect) String() string        { return fmt.Sprintf("%s %s", o.Verb(), o.Field) }
func (o *Collect) Inverse() operation.Op { return &Scatter{Fan: o.Fan} }
func (o *Collect) Takes() []edit.Path    { return nil }
func (o *Collect) Makes() []edit.Path    { return []edit.Path{o.Field} }
func (o *Collect) Changes() []edit.Path  { return nil }

func (o *Collect) Trace(p edit.Path) (edit.Path, operation.Fate) {
	return operation.TraceOneSided(p, o.Field, operation.Clashes)
}

func (o *Collect) Apply(e *edit.Editor, root *edit.Node) error {
	if e.Group == nil {
		return errNoGroup
	}
	records := RecordsOf(e.Group.Children, o.Kind)
	n, i, err := e.Lookup(root, o.Field)
	if err != nil {
		return err
	}
	// A null or an empty list may stay in the field next to children. Any other value would be
	// lost.
	if i >= 0 && !o.stays(n.Elems[i].Type, n.Elems[i].Value()) {
		return operation.Absent(n, o.Field)
	}
	// Without children the field is absent, or empty with present.
	if len(records) == 0 {
		if o.Present && n != nil && i < 0 && o.isNew(e.Group) {
			n.Append(edit.Elem{Type: o.As.bson(), Name: o.Field.Last(), Val: emptyDocument})
		}
		return nil
	}
	// The record lost the object that holds the field. Creating it would change the record.
	if n == nil {
		return edit.Refuse(o.Field, "has no object to be in, and the record has %d of %s", len(records), o.Kind)
	}
	r, err := o.begin(e)
	if err != nil {
		return edit.Refuse(o.Field, "cannot be made of records of %s: %v", o.Kind, err)
	}
	typ, val, err := r.collect(records, o.Far)
	if err != nil {
		return edit.Refuse(o.Field, "cannot be made of records of %s: %v", o.Kind, err)
	}
	if i >= 0 {
		n.Set(i, typ, val)
	} else {
		n.Append(edit.Elem{Type: typ, Name: o.Field.Last(), Val: val})
	}
	return nil
}

// isNew reports whether the field must appear without entries: the target has no record yet, or one
// with the field. A record without the field stays without it.
func (o *Collect) isNew(g *edit.Group) bool {
	if g.Main == nil {
		return true
	}
	_, there := edit.LookupRaw(g.Main, o.Far)
	return there
}

// emptyDocument is the value of a list or map without entries.
var emptyDocument = []byte{5, 0, 0, 0, 0}

// collect builds the value of the field.
func (r *fanRun) collect(records []record.Record, far edit.Path) (bson.Type, []byte, error) {
	if r.As == AsObject && len(records) > 1 {
		return 0, nil, fmt.Errorf("%d records of %s are one object: %s and %s", len(records), r.Kind, records[0].Key, records[1].Key)
	}
	// The present entries supply the fields that only this side has, and the order of map entries.
	held, err := r.entriesOf(far)
	if err != nil {
		return 0, nil, err
	}
	children := make([]child, len(records))
	size := 5
	for i, rec := range records {
		c := &children[i]
		c.key = rec.Key
		if err := r.open(c, rec.Doc); err != nil {
			return 0, nil, fmt.Errorf("record %s of %s: %w", rec.Key, r.Kind, err)
		}
		size += len(rec.Doc) + 16
	}
	if err := r.sort(children, held); err != nil {
		return 0, nil, err
	}
	val := append(make([]byte, 0, size), 0, 0, 0, 0)
	for i := range children {
		c := &children[i]
		// The index follows from the order, so set it after sorting.
		c.index = i
		if val, err = r.appendEntry(val, c, held); err != nil {
			return 0, nil, fmt.Errorf("record %s of %s: %w", c.key, r.Kind, err)
		}
	}
	if r.As == AsObject {
		return bson.TypeEmbeddedDocument, children[0].val, nil
	}
	val = append(val, 0)
	edit.PutLength(val, len(val))
	return r.As.bson(), val, nil
}

// open removes the fields that tie a child to its parent, and applies the reverse of its
// operations.
func (r *fanRun) open(c *child, doc bson.Raw) error {
	e := r.e
	var err error
	if c.item, err = e.Open(doc); err != nil {
		return err
	}
	if !r.OwnID() {
		el, err := c.item.Take(edit.FieldID)
		if err != nil {
			return err
		}
		c.own = bson.RawValue{Type: el.Type, Value: el.Val}
	}
	if r.Parent != nil {
		el, err := c.item.Take(r.Parent)
		if err != nil {
			return err
		}
		// Compare keys, not bytes: the database treats equal numbers of different types as one _id.
		if key, err := record.KeyOf(bson.RawValue{Type: el.Type, Value: el.Val}); err != nil || key != r.g.IDs[r.side()].Key {
			return fmt.Errorf("its %s is %s, not %s of the record that it belongs to", r.Parent, edit.Show(el.Type, el.Val), r.g.IDs[r.side()].Key)
		}
	}
	if r.Entry != nil {
		el, err := c.item.Take(r.Entry)
		if err != nil {
			return err
		}
		// A zero byte would end the name of the field early.
		if el.Type != bson.TypeString || bytes.IndexByte(el.Val[4:len(el.Val)-1], 0) >= 0 {
			return fmt.Errorf("its %s is %s (%s), which cannot be the name of an entry", r.Entry, edit.Show(el.Type, el.Val), edit.TypeName(el.Type))
		}
		c.entry = el.Val[4 : len(el.Val)-1]
	}
	if r.Order != nil {
		el, err := c.item.Take(r.Order)
		if err != nil {
			return err
		}
		var ok bool
		if c.place, ok = placeOf(bson.RawValue{Type: el.Type, Value: el.Val}); !ok || c.place < 0 {
			return fmt.Errorf("its %s is %s (%s), not a place from 0 (int or long)", r.Order, edit.Show(el.Type, el.Val), edit.TypeName(el.Type))
		}
	}
	// Read the key before the operations run: it uses the child's original _id.
	if err := r.fromKey(c); err != nil {
		return err
	}
	for _, o := range r.Fan.Collect.Ops {
		if err := o.Apply(e, c.item); err != nil {
			return operation.RecordError(o, err)
		}
	}
	if err := r.ownIDs(c); err != nil {
		return err
	}
	// The id is a field of the item, so read it after the operations.
	if r.ID != nil {
		typ, val, err := r.part(c, r.ID)
		if err != nil {
			return err
		}
		c.id = bson.RawValue{Type: typ, Value: val}
	}
	return nil
}

// ownIDs restores an item's _id, which only the key of the child has.
func (r *fanRun) ownIDs(c *child) error {
	at := slices.IndexFunc(r.Parts, r.OwnItem)
	if at < 0 || c.item == nil {
		return nil
	}
	var values [keymap.MaxVariables]string
	if err := r.Key.Read(c.own, scalar.ReadExact, values[:len(r.Parts)]); err != nil {
		return fmt.Errorf("its key: %w", err)
	}
	typ, val := r.e.Id(func(dst []byte) (bson.Type, []byte) { return r.Key.Types[at].AppendTo(dst, values[at]) })
	// It is floating, because the target's item may have its _id elsewhere.
	c.item.Elems = slices.Insert(c.item.Elems, 0, edit.Elem{Type: typ, Name: edit.FieldID, Val: val, Floating: true})
	c.item.Changed = true
	return nil
}

// fromKey reads the values that only a child's key has: its place and its entry's name.
func (r *fanRun) fromKey(c *child) error {
	if !r.Indexed() && !(r.As == AsMap && r.Entry == nil) {
		return nil
	}
	var values [keymap.MaxVariables]string
	if err := r.Key.Read(c.own, scalar.ReadExact, values[:len(r.Parts)]); err != nil {
		return fmt.Errorf("its key: %w", err)
	}
	for i, part := range r.Parts {
		switch part.Source {
		case PartIndex:
			n, err := strconv.ParseInt(values[i], 10, 32)
			if err != nil {
				return fmt.Errorf("its key has %q for {%s}, not a number", keymap.Shortened(values[i]), r.Key.Variables[i])
			}
			c.place = n
		case PartEntry:
			if c.entry == nil {
				c.entry = []byte(values[i])
			}
		}
	}
	return nil
}

// sort puts the children into the order of the list. Entries of a map without an order field take
// the target's order. New ones follow, ordered by name.
func (r *fanRun) sort(children []child, held entries) error {
	var bad error
	slices.SortStableFunc(children, func(a, b child) int {
		switch {
		case r.Sorted():
			order, err := compareIDs(a.id, b.id)
			// A comparison function cannot return an error, so collect it.
			bad = errors.Join(bad, err)
			return order
		case r.As == AsMap && r.Order == nil:
			x, y := held.place(r.Fan, &a), held.place(r.Fan, &b)
			if x >= 0 && y >= 0 {
				return cmp.Compare(x, y)
			}
			// Unknown places are -1. New entries come last.
			return cmp.Or(cmp.Compare(y, x), bytes.Compare(a.entry, b.entry))
		}
		return cmp.Compare(a.place, b.place)
	})
	if bad != nil {
		return bad
	}
	// Two children in one place would exchange places on every round trip.
	for i := 1; i < len(children); i++ {
		a, b := &children[i-1], &children[i]
		switch {
		case r.Order != nil && a.place == b.place:
			return fmt.Errorf("records %s and %s of %s have the same %s, %d", a.key, b.key, r.Kind, r.Order, a.place)
		case r.As == AsMap && bytes.Equal(a.entry, b.entry):
			return fmt.Errorf("records %s and %s of %s are the same entry %q", a.key, b.key, r.Kind, a.entry)
		case r.Sorted():
			if order, _ := compareIDs(a.id, b.id); order == 0 {
				return fmt.Errorf("records %s and %s of %s have the same %s", a.key, b.key, r.Kind, r.ID)
			}
		}
	}
	return nil
}

// appendEntry appends an entry. It adds the fields that only the target has, and checks that the
// entry gives back the child.
func (r *fanRun) appendEntry(dst []byte, c *child, held entries) ([]byte, error) {
	// Compute the key again from the content. Another key means that fanning out would make another
	// record.
	key, own := c.key, c.own
	if err := r.identify(c); err != nil {
		return nil, err
	}
	if key != c.key {
		return nil, fmt.Errorf("its fields and its position give the key %s", c.key)
	}
	if !r.OwnID() && !(own.Type == c.own.Type && bytes.Equal(own.Value, c.own.Value)) {
		return nil, errors.New("its _id has a number of another type than the lens writes")
	}
	// An _id equal to the parent's was given by name. Remove it again.
	if r.Unnamed != "" {
		if i, _ := c.item.Find(edit.FieldID); i >= 0 && edit.SameValue(r.g.IDs[r.side()].Value, bson.RawValue{Type: c.item.Elems[i].Type, Value: c.item.Elems[i].Value()}) {
			c.item.Remove(i)
		}
	}
	if r.Value != nil {
		i, err := c.item.Find(r.Value)
		if err != nil {
			return nil, err
		}
		// A plain value has no place for other fields.
		if i < 0 || len(c.item.Elems) != 1 {
			return nil, fmt.Errorf("it must have %s and no other field that %s could not hold; add further fields with operations", r.Value, r.Field)
		}
		c.typ, c.val = c.item.Elems[i].Type, c.item.Elems[i].Value()
	} else {
		// Restore the fields that only this side has, and their order.
		h, ok := held.of(r.Fan, c)
		if ok && r.OwnID() {
			if err := r.e.FloatID(c.item, h); err != nil {
				return nil, err
			}
		}
		if ok && (r.Fan.Collect.Keeps() || c.item.Dirty()) {
			if err := r.Fan.Collect.Over(r.e, c.item, h); err != nil {
				return nil, err
			}
		}
		c.typ = bson.TypeEmbeddedDocument
		if r.As == AsObject {
			c.val = c.item.Encode(nil)
			return dst, nil
		}
	}
	dst = append(dst, byte(c.typ))
	if r.As == AsMap {
		dst = append(dst, c.entry...)
	} else {
		dst = strconv.AppendInt(dst, int64(c.index), 10)
	}
	dst = append(dst, 0)
	if r.Value != nil {
		return append(dst, c.val...), nil
	}
	return c.item.Encode(dst), nil
}

// Grouped marks Collect as an operation on several records.
func (o *Collect) Grouped() {}

var _ operation.Grouped = (*Collect)(nil)
