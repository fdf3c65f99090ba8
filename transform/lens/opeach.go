package lens

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// container is what an each works on.
type container string

const (
	anyItems container = "" // as the record has it
	inList   container = "list"
	inMap    container = "map"
)

// each does operations within every item of a list, or every value of a map. An absent
// field and a null stay as they are.
type each struct {
	field path
	in    container
	// match tells the items of a list apart, on the side before and on the side after.
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
		if o.farMatch, err = traceKept(match, ops); err != nil {
			return nil, fmt.Errorf("match: %w", err)
		}
	}
	return o, nil
}

// needsMatch reports whether the items of a list must be told apart.
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

// told reports whether items are found again on the other side, so that no two of a list
// may look alike.
func (o *each) told() bool {
	return len(o.run.held)+len(o.back.held) > 0 || o.match != nil && len(o.run.forms)+len(o.back.forms) > 0
}

// forms are those that the items keep. Where nothing tells the items of a list apart, it
// keeps its form as a whole.
func (o *each) forms() []form {
	var out []form
	for _, f := range o.run.forms {
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

// holds are the fields that the items keep.
func (o *each) holds() []holding {
	var out []holding
	for _, h := range o.run.held {
		out = append(out, o.lift(h))
	}
	return out
}

// lift is a holding of the items as the record sees it.
func (o *each) lift(h holding) holding {
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

// nested names an operation within others.
type nested struct{ outer, inner fmt.Stringer }

func (n nested) String() string { return n.outer.String() + ": " + n.inner.String() }

// trace follows a path into the items: over itemPart, or as the database writes it, with
// nothing or a number for the items of a list and a name for the entry of a map.
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
	implied := string(p[len(o.field)]) != itemPart && entry == nil
	f := kept
	for _, step := range o.run.ops {
		var at fate
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

// fateOfAll is what becomes of the list itself: its items have other values, or fields
// of other names.
func (o *each) fateOfAll() fate {
	for _, step := range o.run.ops {
		for _, p := range pathsOf(step) {
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
				within, _ := recordError(step, err).(*RecordError)
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
