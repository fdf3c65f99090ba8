package operation

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
)

// Container restricts the type of value that an Each accepts.
type Container string

const (
	AnyItems Container = "" // a list or a map
	InList   Container = "list"
	InMap    Container = "map"
)

// Each applies operations to every item of a list or every value of a map. Absent and null fields
// stay. Run transforms an item to the far side, and Back is its reverse.
type Each struct {
	Field edit.Path
	in    Container
	// match is the field that distinguishes the items of a list, on the near and on the far side.
	match, farMatch edit.Path
	Run, Back       Program
}

// NewEach compiles the operations on items. match is the path, within an item, of the field that
// distinguishes the items of a list. It may be nil if NeedsMatch is false.
func NewEach(field edit.Path, in Container, match edit.Path, ops []Op) (*Each, error) {
	o := &Each{Field: field, in: in, match: match}
	var err error
	if o.Run, err = Compile(ops); err != nil {
		return nil, err
	}
	if o.Back, err = Compile(Inverses(ops)); err != nil {
		return nil, err
	}
	if match != nil {
		// The operations may rename the field that distinguishes the items.
		if o.farMatch, err = TraceKept(match, ops); err != nil {
			return nil, fmt.Errorf("match: %w", err)
		}
	}
	return o, nil
}

// NeedsMatch reports whether NewEach needs a match, because items have fields that only one side
// has and may be in a list.
func (o *Each) NeedsMatch() bool {
	return o.in != InMap && len(o.Run.Held)+len(o.Back.Held) > 0
}

func (o *Each) String() string { return fmt.Sprintf("each %s", o.Field) }
func (o *Each) Inverse() Op {
	return &Each{Field: o.Field, in: o.in, match: o.farMatch, farMatch: o.match, Run: o.Back, Back: o.Run}
}
func (o *Each) Takes() []edit.Path   { return nil }
func (o *Each) Makes() []edit.Path   { return nil }
func (o *Each) Changes() []edit.Path { return []edit.Path{o.Field} }

// told reports whether items are matched with the other side's. Then no two items of a list may
// have the same key.
func (o *Each) told() bool {
	return len(o.Run.Held)+len(o.Back.Held) > 0 || o.match != nil && len(o.Run.Forms)+len(o.Back.Forms) > 0
}

// Forms returns the forms of the items' values. If items cannot be matched one by one, the list
// keeps its form as a whole.
func (o *Each) Forms() []form {
	var out []form
	for _, f := range o.Run.Forms {
		// Items without a key cannot be matched with the far side one by one.
		whole := o.in != InMap && o.match == nil || slices.ContainsFunc(f.Fields, func(h Holding) bool { return h.Path.IsItem() && o.in != InMap })
		if whole {
			out = append(out, form{Fields: []Holding{{Path: o.Field, By: nested{o, f.Fields[0].By}}}, anyOrder: f.anyOrder})
			continue
		}
		lifted := form{anyOrder: f.anyOrder}
		for _, h := range f.Fields {
			lifted.Fields = append(lifted.Fields, o.lift(h))
		}
		out = append(out, lifted)
	}
	return out
}

// holds returns the fields that the items keep.
func (o *Each) holds() []Holding {
	var out []Holding
	for _, h := range o.Run.Held {
		out = append(out, o.lift(h))
	}
	return out
}

// lift converts a holding of an item to one of the record.
func (o *Each) lift(h Holding) Holding {
	// nil: entries of a map match by name.
	matches := []edit.Path{nil}
	if o.farMatch != nil {
		matches[0] = o.Field.Join(o.farMatch)
	}
	for _, m := range h.matches {
		if m != nil {
			m = o.Field.Join(m)
		}
		matches = append(matches, m)
	}
	return Holding{Path: o.Field.Join(h.Path), matches: matches, By: nested{o, h.By}}
}

// nested names an operation within another one.
type nested struct{ outer, inner fmt.Stringer }

func (n nested) String() string { return n.outer.String() + ": " + n.inner.String() }

// Trace follows a path into the items. The path leads through edit.ItemPart, or has the form of the
// database. That form has no part or a number for a list item, and a name for a map entry.
func (o *Each) Trace(p edit.Path) (edit.Path, Fate) {
	if !p.Under(o.Field) {
		return p, kept
	}
	rest := p[len(o.Field):]
	if len(rest) == 0 {
		return p, o.fateOfAll()
	}
	var entry []byte
	switch {
	case string(rest[0]) == edit.ItemPart:
	case o.in == InMap || o.in == InList && isNumber(rest[0]):
		entry = rest[0]
		rest = append(edit.Path{edit.ItemName}, rest[1:]...)
	case o.in == InList:
		rest = append(edit.Path{edit.ItemName}, rest...)
	default:
		return p, Covers
	}
	// The database's paths omit the item of a list. Leave it out of the result too.
	implied := string(p[len(o.Field)]) != edit.ItemPart && entry == nil
	f := kept
	for _, step := range o.Run.Ops {
		var at Fate
		// Keep the strongest effect. Fates are ordered by strength.
		if rest, at = step.Trace(rest); at > f {
			f = at
		}
		if rest == nil || f > Converted {
			return rest, f
		}
	}
	switch {
	case entry != nil:
		rest = append(edit.Path{entry}, rest[1:]...)
	case implied:
		rest = rest[1:]
	}
	return o.Field.Join(rest), f
}

// fateOfAll returns the fate of the list itself: converted if only the items' values change, covers
// if their fields change.
func (o *Each) fateOfAll() Fate {
	for _, step := range o.Run.Ops {
		for _, p := range PathsOf(step) {
			// An operation on a field changes the items' fields, not only their values.
			if !p.IsItem() {
				return Covers
			}
		}
	}
	return Converted
}

func isNumber(part []byte) bool {
	for _, c := range part {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(part) > 0
}

func (o *Each) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	switch {
	case !edit.HasItems(el.Type):
		return edit.Refuse(o.Field, "is of type %s, neither a list nor a map", edit.TypeName(el.Type))
	case o.in == InList && el.Type != bson.TypeArray:
		return edit.Refuse(o.Field, "is of type %s, not a list", edit.TypeName(el.Type))
	case o.in == InMap && el.Type == bson.TypeArray:
		return edit.Refuse(o.Field, "is a list, not a map")
	}
	items, err := e.OpenAt(el)
	if err != nil {
		return err
	}
	// Equal keys would let an item keep the fields of another one.
	if o.told() {
		match := o.match
		if el.Type != bson.TypeArray {
			match = nil
		}
		if _, err := e.ItemPlaces(items, match); err != nil {
			return edit.Refuse(o.Field, "%w", err)
		}
	}
	return e.EachItem(items, func(k int, item *edit.Node) error {
		for _, step := range o.Run.Ops {
			if err := step.Apply(e, item); err != nil {
				if errors.Is(err, edit.ErrMalformed) {
					return err
				}
				within, _ := RecordError(step, err).(*transform.RecordError) //nolint:errorlint // RecordError made it
				return &itemError{list: o.Field, item: string(items.Elems[k].Name), err: within}
			}
		}
		return nil
	})
}

var (
	_ holder = (*Each)(nil)
	_ former = (*Each)(nil)
	_ Op     = (*Wrap)(nil)
	_ Op     = (*Unwrap)(nil)
)
