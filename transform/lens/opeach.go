package lens

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
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
	field path
	in    container
	// match is the field that distinguishes the items of a list, on the near and on the far side.
	match, farMatch path
	run, back       program
}

func newEach(field path, in container, match path, ops []op) (*each, error) {
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
func (o *each) takes() []path   { return nil }
func (o *each) makes() []path   { return nil }
func (o *each) changes() []path { return []path{o.field} }

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
		whole := o.in != inMap && o.match == nil || slices.ContainsFunc(f.fields, func(h holding) bool { return h.path.isItem() && o.in != inMap })
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
	matches := []path{nil}
	if o.farMatch != nil {
		matches[0] = o.field.join(o.farMatch)
	}
	for _, m := range h.matches {
		if m != nil {
			m = o.field.join(m)
		}
		matches = append(matches, m)
	}
	return holding{path: o.field.join(h.path), matches: matches, by: nested{o, h.by}}
}

// nested names an operation within another one.
type nested struct{ outer, inner fmt.Stringer }

func (n nested) String() string { return n.outer.String() + ": " + n.inner.String() }

// trace follows a path into the items. The path leads through itemPart, or has the database's form:
// no part or a number for a list item, a name for a map entry.
func (o *each) trace(p path) (path, fate) {
	if !p.under(o.field) {
		return p, kept
	}
	rest := p[len(o.field):]
	if len(rest) == 0 {
		return p, o.fateOfAll()
	}
	var entry []byte
	switch {
	case string(rest[0]) == itemPart:
	case o.in == inMap || o.in == inList && isNumber(rest[0]):
		entry = rest[0]
		rest = append(path{itemName}, rest[1:]...)
	case o.in == inList:
		rest = append(path{itemName}, rest...)
	default:
		return p, covers
	}
	// The database's paths omit the item of a list. Leave it out of the result too.
	implied := string(p[len(o.field)]) != itemPart && entry == nil
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
		rest = append(path{entry}, rest[1:]...)
	case implied:
		rest = rest[1:]
	}
	return o.field.join(rest), f
}

// fateOfAll returns the fate of the list itself: converted if only the items' values change, covers
// if their fields change.
func (o *each) fateOfAll() fate {
	for _, step := range o.run.ops {
		for _, p := range pathsOf(step) {
			// An operation on a field changes the items' fields, not only their values.
			if !p.isItem() {
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

func (o *each) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 || n.elems[i].typ == bson.TypeNull {
		return err
	}
	el := &n.elems[i]
	switch {
	case !hasItems(el.typ):
		return refuse(o.field, "is of type %s, neither a list nor a map", TypeName(el.typ))
	case o.in == inList && el.typ != bson.TypeArray:
		return refuse(o.field, "is of type %s, not a list", TypeName(el.typ))
	case o.in == inMap && el.typ == bson.TypeArray:
		return refuse(o.field, "is a list, not a map")
	}
	items, err := e.openAt(el)
	if err != nil {
		return err
	}
	// Equal keys would let an item keep the fields of another one.
	if o.told() {
		match := o.match
		if el.typ != bson.TypeArray {
			match = nil
		}
		if _, err := e.itemPlaces(items, match); err != nil {
			return refuse(o.field, "%w", err)
		}
	}
	return e.eachItem(items, func(k int, item *node) error {
		for _, step := range o.run.ops {
			if err := step.apply(e, item); err != nil {
				if errors.Is(err, errMalformed) {
					return err
				}
				within, _ := recordError(step, err).(*RecordError) //nolint:errorlint // recordError made it
				return &itemError{list: o.field, item: string(items.elems[k].name), err: within}
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
