package lens

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
)

// container is the type of value that an each works on.
type container string

const (
	anyItems container = "" // whichever the record has
	inList   container = "list"
	inMap    container = "map"
)

// each applies operations to every item of a list or every value of a map. Absent and null fields
// stay.
type each struct {
	field edit.Path
	in    container
	// match is the field that distinguishes the items of a list, on the near and on the far side.
	match, farMatch edit.Path
	run, back       program
}

func newEach(field edit.Path, in container, match edit.Path, ops []op) (*each, error) {
	o := &each{field: field, in: in, match: match}
	var err error
	if o.run, err = compileProgram(ops); err != nil {
		return nil, err
	}
	if o.back, err = compileProgram(inverses(ops)); err != nil {
		return nil, err
	}
	if match != nil {
		// The operations may rename the field that distinguishes the items.
		if o.farMatch, err = traceKept(match, ops); err != nil {
			return nil, fmt.Errorf("match: %w", err)
		}
	}
	return o, nil
}

// needsMatch reports whether the items of a list must be distinguishable.
func (o *each) needsMatch() bool {
	return o.in != inMap && len(o.run.held)+len(o.back.held) > 0
}

func (o *each) String() string { return fmt.Sprintf("each %s", o.field) }
func (o *each) inverse() op {
	return &each{field: o.field, in: o.in, match: o.farMatch, farMatch: o.match, run: o.back, back: o.run}
}
func (o *each) takes() []edit.Path   { return nil }
func (o *each) makes() []edit.Path   { return nil }
func (o *each) changes() []edit.Path { return []edit.Path{o.field} }

// told reports whether items are matched with the other side's. Then no two items of a list may
// have the same key.
func (o *each) told() bool {
	return len(o.run.held)+len(o.back.held) > 0 || o.match != nil && len(o.run.forms)+len(o.back.forms) > 0
}

// forms returns the forms of the items' values. If nothing distinguishes the items of a list, the
// list keeps its form as a whole.
func (o *each) forms() []form {
	var out []form
	for _, f := range o.run.forms {
		// Items without a key cannot be matched with the far side one by one.
		whole := o.in != inMap && o.match == nil || slices.ContainsFunc(f.fields, func(h holding) bool { return h.path.IsItem() && o.in != inMap })
		if whole {
			out = append(out, form{fields: []holding{{path: o.field, by: nested{o, f.fields[0].by}}}, anyOrder: f.anyOrder})
			continue
		}
		lifted := form{anyOrder: f.anyOrder}
		for _, h := range f.fields {
			lifted.fields = append(lifted.fields, o.lift(h))
		}
		out = append(out, lifted)
	}
	return out
}

// holds returns the fields that the items keep.
func (o *each) holds() []holding {
	var out []holding
	for _, h := range o.run.held {
		out = append(out, o.lift(h))
	}
	return out
}

// lift converts a holding of an item to one of the record.
func (o *each) lift(h holding) holding {
	// nil: entries of a map match by name.
	matches := []edit.Path{nil}
	if o.farMatch != nil {
		matches[0] = o.field.Join(o.farMatch)
	}
	for _, m := range h.matches {
		if m != nil {
			m = o.field.Join(m)
		}
		matches = append(matches, m)
	}
	return holding{path: o.field.Join(h.path), matches: matches, by: nested{o, h.by}}
}

// nested names an operation within another one.
type nested struct{ outer, inner fmt.Stringer }

func (n nested) String() string { return n.outer.String() + ": " + n.inner.String() }

// trace follows a path into the items. The path leads through itemPart, or has the database's form:
// no part or a number for a list item, a name for a map entry.
func (o *each) trace(p edit.Path) (edit.Path, fate) {
	if !p.Under(o.field) {
		return p, kept
	}
	rest := p[len(o.field):]
	if len(rest) == 0 {
		return p, o.fateOfAll()
	}
	var entry []byte
	switch {
	case string(rest[0]) == edit.ItemPart:
	case o.in == inMap || o.in == inList && isNumber(rest[0]):
		entry = rest[0]
		rest = append(edit.Path{edit.ItemName}, rest[1:]...)
	case o.in == inList:
		rest = append(edit.Path{edit.ItemName}, rest...)
	default:
		return p, covers
	}
	// The database's paths omit the item of a list. Leave it out of the result too.
	implied := string(p[len(o.field)]) != edit.ItemPart && entry == nil
	f := kept
	for _, step := range o.run.ops {
		var at fate
		// Keep the strongest effect. Fates are ordered by strength.
		if rest, at = step.trace(rest); at > f {
			f = at
		}
		if rest == nil || f > converted {
			return rest, f
		}
	}
	switch {
	case entry != nil:
		rest = append(edit.Path{entry}, rest[1:]...)
	case implied:
		rest = rest[1:]
	}
	return o.field.Join(rest), f
}

// fateOfAll returns the fate of the list itself: converted if only the items' values change, covers
// if their fields change.
func (o *each) fateOfAll() fate {
	for _, step := range o.run.ops {
		for _, p := range pathsOf(step) {
			// An operation on a field changes the items' fields, not only their values.
			if !p.IsItem() {
				return covers
			}
		}
	}
	return converted
}

func isNumber(part []byte) bool {
	for _, c := range part {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(part) > 0
}

func (o *each) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	switch {
	case !edit.HasItems(el.Type):
		return edit.Refuse(o.field, "is of type %s, neither a list nor a map", edit.TypeName(el.Type))
	case o.in == inList && el.Type != bson.TypeArray:
		return edit.Refuse(o.field, "is of type %s, not a list", edit.TypeName(el.Type))
	case o.in == inMap && el.Type == bson.TypeArray:
		return edit.Refuse(o.field, "is a list, not a map")
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
			return edit.Refuse(o.field, "%w", err)
		}
	}
	return e.EachItem(items, func(k int, item *edit.Node) error {
		for _, step := range o.run.ops {
			if err := step.apply(e, item); err != nil {
				if errors.Is(err, edit.ErrMalformed) {
					return err
				}
				within, _ := recordError(step, err).(*transform.RecordError)
				return &itemError{list: o.field, item: string(items.Elems[k].Name), err: within}
			}
		}
		return nil
	})
}

var (
	_ holder = (*each)(nil)
	_ former = (*each)(nil)
	_ op     = (*wrap)(nil)
	_ op     = (*unwrap)(nil)
)
