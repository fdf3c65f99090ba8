package lens

import (
	"errors"
	"fmt"
	"slices"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
)

// nothing returns a comparison that no record satisfies.
func nothing(p edit.Path) []condition { return []condition{{path: p, op: transform.OpIn}} }

func (c condition) onNull() bool { return slices.Contains(c.values, nil) }

// at returns the same comparison of another field.
func (c condition) at(p edit.Path) []condition {
	c.path = p
	return []condition{c}
}

var (
	errNullAmongItems = errors.New("a comparison with null does not mean the same in the other version, which has a list there")
	errEqualOnly      = errors.New("only == and in can be mapped")
)

func (o *move) fieldsOf(p edit.Path) ([]edit.Path, error) {
	next, f := o.trace(p)
	switch {
	case f == clashes:
		return nil, f.reason(o)
	// The object loses the moved field. Ask for the field at its new place as well.
	case f == covers && o.from.Under(p) && !o.to.Under(p):
		return []edit.Path{p, o.to}, nil
	}
	return []edit.Path{next}, nil
}

// compare maps a comparison of a value to one of the list's only item. Null has no list around it.
func (o *wrap) compare(c condition) ([]condition, error) {
	switch {
	case !c.path.Overlaps(o.field) || c.path.Equal(o.field) && c.op == transform.OpHas:
		return c.at(c.path), nil
	case !c.path.Under(o.field):
		return nil, covers.reason(o)
	}
	if c.onNull() {
		if c.path.Equal(o.field) && (c.op == transform.OpEqual || len(c.values) == 1 && c.op == transform.OpIn) {
			return c.at(c.path), nil
		}
		return nil, errNullAmongItems
	}
	return c.at(o.item(c.path)), nil
}

// item returns the path p with the list's item inserted.
func (o *wrap) item(p edit.Path) edit.Path {
	return o.field.Join(edit.Path{edit.ItemName}).Join(p[len(o.field):])
}

func (o *wrap) fieldsOf(p edit.Path) ([]edit.Path, error) {
	if p.Under(o.field) && !p.Equal(o.field) {
		p = o.item(p)
	}
	return []edit.Path{p}, nil
}

func (o *unwrap) compare(c condition) ([]condition, error) {
	rest := edit.Path(nil)
	if c.path.Under(o.field) {
		rest = c.path[len(o.field):]
	}
	switch {
	case !c.path.Overlaps(o.field):
		return c.at(c.path), nil
	case rest == nil:
		return nil, covers.reason(o)
	case len(rest) == 0:
		return o.compareList(c)
	case string(rest[0]) != edit.ItemPart:
		return nil, fmt.Errorf("%s is a list: ask for %s.*", o.field, o.field)
	// An absent item and a null item are different in a list, but not in a single field.
	case c.onNull() || c.op == transform.OpHas && len(rest) == 1:
		return nil, errNullAmongItems
	}
	return c.at(o.field.Join(rest[1:])), nil
}

// compareList maps a comparison of the list itself, which never equals a single value.
func (o *unwrap) compareList(c condition) ([]condition, error) {
	switch {
	case c.op == transform.OpHas:
		return c.at(c.path), nil
	case c.op == transform.OpContains && !c.onNull():
		c.op = transform.OpEqual
		return c.at(c.path), nil
	case c.op == transform.OpContains:
		return nothing(c.path), nil // unwrap refuses a list with a null
	case c.onNull() && (c.op == transform.OpEqual || c.op == transform.OpIn):
		return []condition{{c.path, transform.OpEqual, []any{nil}}}, nil
	}
	return nothing(c.path), nil
}

func (o *unwrap) fieldsOf(p edit.Path) ([]edit.Path, error) {
	if p.Under(o.field) && !p.Equal(o.field) {
		rest := p[len(o.field):]
		if string(rest[0]) != edit.ItemPart {
			return nil, fmt.Errorf("%s is a list: ask for %s.*", o.field, o.field)
		}
		p = o.field.Join(rest[1:])
	}
	return []edit.Path{p}, nil
}

// inItems splits a path into the items of an each. entry is the name of the item on the path, or
// nil for any item.
func (o *each) inItems(p edit.Path) (rest edit.Path, entry []byte, err error) {
	rest = p[len(o.field):]
	switch {
	case string(rest[0]) == edit.ItemPart:
		return rest, nil, nil
	case o.in == inMap || isNumber(rest[0]):
		return edit.Path{edit.ItemName}.Join(rest[1:]), rest[0], nil
	}
	return nil, nil, fmt.Errorf("%s has items: ask for %s.*", o.field, o.field)
}

// outOfItems is the reverse of inItems.
func (o *each) outOfItems(rest edit.Path, entry []byte) edit.Path {
	if entry == nil {
		return o.field.Join(rest)
	}
	return o.field.Join(edit.Path{entry}).Join(rest[1:])
}

func (o *each) compare(c condition) ([]condition, error) {
	switch {
	case !c.path.Under(o.field):
		return c.at(c.path), nil
	case c.path.Equal(o.field):
		return o.compareAllItems(c)
	}
	// Map the comparison within one item, and put the path together again.
	rest, entry, err := o.inItems(c.path)
	if err != nil {
		return nil, err
	}
	c.path = rest
	cs, err := o.compareItem(c)
	if err != nil {
		return nil, err
	}
	// Separate comparisons of "*" could be satisfied by different items.
	if len(cs) > 1 && entry == nil {
		return nil, errors.New("it is several comparisons in the other version, which would have to be met by the same item")
	}
	for i := range cs {
		cs[i].path = o.outOfItems(cs[i].path, entry)
	}
	return cs, nil
}

// compareItem maps a comparison of one item.
func (o *each) compareItem(c condition) ([]condition, error) {
	cs := []condition{c}
	for _, step := range o.run.ops {
		var err error
		if cs, err = compareAll(step, cs); err != nil {
			return nil, err
		}
	}
	return cs, nil
}

// compareAllItems maps a comparison of the list or map itself. Of all operators only contains
// depends on the items.
func (o *each) compareAllItems(c condition) ([]condition, error) {
	// Only operations on the items themselves change the comparison.
	onItems := slices.ContainsFunc(o.run.ops, func(step op) bool { return slices.ContainsFunc(pathsOf(step), edit.Path.IsItem) })
	if c.op != transform.OpContains || !onItems || o.in == inMap {
		return c.at(c.path), nil
	}
	if o.in != inList {
		return nil, fmt.Errorf("%s may be a list or a map: write in: list into the lens, or ask for %s.*", o.field, o.field)
	}
	// contains of a list is == of an item.
	cs, err := o.compareItem(condition{edit.Path{edit.ItemName}, transform.OpEqual, c.values})
	if err != nil {
		return nil, err
	}
	switch {
	case len(cs) == 1 && cs[0].op == transform.OpIn && len(cs[0].values) == 0:
		return nothing(c.path), nil
	case len(cs) == 1 && cs[0].op == transform.OpEqual && cs[0].path.IsItem():
		return []condition{{c.path, transform.OpContains, cs[0].values}}, nil
	}
	return nil, fmt.Errorf("its items are not simply others in the other version (%s)", o)
}

func (o *each) fieldsOf(p edit.Path) ([]edit.Path, error) {
	if !p.Under(o.field) || p.Equal(o.field) {
		return []edit.Path{p}, nil
	}
	rest, entry, err := o.inItems(p)
	if err != nil {
		return nil, err
	}
	// Follow the field through the operations on the items.
	ps := []edit.Path{rest}
	for _, step := range o.run.ops {
		var next []edit.Path
		for _, p := range ps {
			far, err := fieldsAfter(step, p)
			if err != nil {
				return nil, err
			}
			next = append(next, far...)
		}
		ps = next
	}
	for i := range ps {
		ps[i] = o.outOfItems(ps[i], entry)
	}
	return ps, nil
}

var (
	_ comparer = (*wrap)(nil)
	_ comparer = (*unwrap)(nil)
	_ comparer = (*each)(nil)
	_ spreader = (*move)(nil)
	_ spreader = (*each)(nil)
	_ spreader = (*wrap)(nil)
	_ spreader = (*unwrap)(nil)
)
