package operation

import (
	"errors"
	"fmt"
	"slices"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
)

// nothing returns a comparison that no record satisfies.
func nothing(p edit.Path) []Condition { return []Condition{{Path: p, Op: transform.OpIn}} }

func (c Condition) onNull() bool { return slices.Contains(c.Values, nil) }

// at returns the same comparison of another field.
func (c Condition) at(p edit.Path) []Condition {
	c.Path = p
	return []Condition{c}
}

var (
	errNullAmongItems = errors.New("a comparison with null has another meaning in the other version, which has a list there")
	errEqualOnly      = errors.New("only == and in can be mapped")
)

func (o *Move) fieldsOf(p edit.Path) ([]edit.Path, error) {
	next, f := o.Trace(p)
	switch {
	case f == Clashes:
		return nil, f.reason(o)
	// The object loses the moved field. Ask for the field at its new place as well.
	case f == Covers && o.From.Under(p) && !o.To.Under(p):
		return []edit.Path{p, o.To}, nil
	}
	return []edit.Path{next}, nil
}

// Compare maps a comparison of the value to a comparison of the list's only item. A comparison with
// null stays, because null has no list around it.
func (o *Wrap) Compare(c Condition) ([]Condition, error) {
	switch {
	case !c.Path.Overlaps(o.Field) || c.Path.Equal(o.Field) && c.Op == transform.OpHas:
		return c.at(c.Path), nil
	case !c.Path.Under(o.Field):
		return nil, Covers.reason(o)
	}
	if c.onNull() {
		if c.Path.Equal(o.Field) && (c.Op == transform.OpEqual || len(c.Values) == 1 && c.Op == transform.OpIn) {
			return c.at(c.Path), nil
		}
		return nil, errNullAmongItems
	}
	return c.at(o.item(c.Path)), nil
}

// item returns the path p with the list's item inserted.
func (o *Wrap) item(p edit.Path) edit.Path {
	return o.Field.Join(edit.Path{edit.ItemName}).Join(p[len(o.Field):])
}

func (o *Wrap) fieldsOf(p edit.Path) ([]edit.Path, error) {
	if p.Under(o.Field) && !p.Equal(o.Field) {
		p = o.item(p)
	}
	return []edit.Path{p}, nil
}

func (o *Unwrap) Compare(c Condition) ([]Condition, error) {
	rest := edit.Path(nil)
	if c.Path.Under(o.Field) {
		rest = c.Path[len(o.Field):]
	}
	switch {
	case !c.Path.Overlaps(o.Field):
		return c.at(c.Path), nil
	case rest == nil:
		return nil, Covers.reason(o)
	case len(rest) == 0:
		return o.compareList(c)
	case string(rest[0]) != edit.ItemPart:
		return nil, fmt.Errorf("%s is a list: ask for %s.*", o.Field, o.Field)
	// An absent item and a null item are different in a list, but not in a single field.
	case c.onNull() || c.Op == transform.OpHas && len(rest) == 1:
		return nil, errNullAmongItems
	}
	return c.at(o.Field.Join(rest[1:])), nil
}

// compareList maps a comparison of the list itself, which never equals a single value.
func (o *Unwrap) compareList(c Condition) ([]Condition, error) {
	switch {
	case c.Op == transform.OpHas:
		return c.at(c.Path), nil
	case c.Op == transform.OpContains && !c.onNull():
		c.Op = transform.OpEqual
		return c.at(c.Path), nil
	case c.Op == transform.OpContains:
		return nothing(c.Path), nil // unwrap refuses a list with a null
	case c.onNull() && (c.Op == transform.OpEqual || c.Op == transform.OpIn):
		return []Condition{{c.Path, transform.OpEqual, []any{nil}}}, nil
	}
	return nothing(c.Path), nil
}

func (o *Unwrap) fieldsOf(p edit.Path) ([]edit.Path, error) {
	if p.Under(o.Field) && !p.Equal(o.Field) {
		rest := p[len(o.Field):]
		if string(rest[0]) != edit.ItemPart {
			return nil, fmt.Errorf("%s is a list: ask for %s.*", o.Field, o.Field)
		}
		p = o.Field.Join(rest[1:])
	}
	return []edit.Path{p}, nil
}

// inItems splits a path into the items of an each. entry is the name of the item on the path, or
// nil for any item.
func (o *Each) inItems(p edit.Path) (rest edit.Path, entry []byte, err error) {
	rest = p[len(o.Field):]
	switch {
	case string(rest[0]) == edit.ItemPart:
		return rest, nil, nil
	case o.in == InMap || isNumber(rest[0]):
		return edit.Path{edit.ItemName}.Join(rest[1:]), rest[0], nil
	}
	return nil, nil, fmt.Errorf("%s has items: ask for %s.*", o.Field, o.Field)
}

// outOfItems is the reverse of inItems.
func (o *Each) outOfItems(rest edit.Path, entry []byte) edit.Path {
	if entry == nil {
		return o.Field.Join(rest)
	}
	return o.Field.Join(edit.Path{entry}).Join(rest[1:])
}

func (o *Each) Compare(c Condition) ([]Condition, error) {
	switch {
	case !c.Path.Under(o.Field):
		return c.at(c.Path), nil
	case c.Path.Equal(o.Field):
		return o.compareAllItems(c)
	}
	// Map the comparison within one item, and put the path together again.
	rest, entry, err := o.inItems(c.Path)
	if err != nil {
		return nil, err
	}
	c.Path = rest
	cs, err := o.compareItem(c)
	if err != nil {
		return nil, err
	}
	// Separate comparisons of "*" could be satisfied by different items.
	if len(cs) > 1 && entry == nil {
		return nil, errors.New("it becomes several comparisons in the other version, which the same item would have to meet")
	}
	for i := range cs {
		cs[i].Path = o.outOfItems(cs[i].Path, entry)
	}
	return cs, nil
}

// compareItem maps a comparison of one item.
func (o *Each) compareItem(c Condition) ([]Condition, error) {
	cs := []Condition{c}
	for _, step := range o.Run.Ops {
		var err error
		if cs, err = compareAll(step, cs); err != nil {
			return nil, err
		}
	}
	return cs, nil
}

// compareAllItems maps a comparison of the list or map itself. Of all operators only contains
// depends on the items.
func (o *Each) compareAllItems(c Condition) ([]Condition, error) {
	// Only operations on the items themselves change the comparison.
	onItems := slices.ContainsFunc(o.Run.Ops, func(step Op) bool { return slices.ContainsFunc(PathsOf(step), edit.Path.IsItem) })
	if c.Op != transform.OpContains || !onItems || o.in == InMap {
		return c.at(c.Path), nil
	}
	if o.in != InList {
		return nil, fmt.Errorf("%s may be a list or a map: write in: list into the lens, or ask for %s.*", o.Field, o.Field)
	}
	// contains of a list is == of an item.
	cs, err := o.compareItem(Condition{edit.Path{edit.ItemName}, transform.OpEqual, c.Values})
	if err != nil {
		return nil, err
	}
	switch {
	case len(cs) == 1 && cs[0].Op == transform.OpIn && len(cs[0].Values) == 0:
		return nothing(c.Path), nil
	case len(cs) == 1 && cs[0].Op == transform.OpEqual && cs[0].Path.IsItem():
		return []Condition{{c.Path, transform.OpContains, cs[0].Values}}, nil
	}
	return nil, fmt.Errorf("its items have no one-to-one counterparts in the other version (%s)", o)
}

func (o *Each) fieldsOf(p edit.Path) ([]edit.Path, error) {
	if !p.Under(o.Field) || p.Equal(o.Field) {
		return []edit.Path{p}, nil
	}
	rest, entry, err := o.inItems(p)
	if err != nil {
		return nil, err
	}
	// Follow the field through the operations on the items.
	ps := []edit.Path{rest}
	for _, step := range o.Run.Ops {
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
	_ Comparer = (*Wrap)(nil)
	_ Comparer = (*Unwrap)(nil)
	_ Comparer = (*Each)(nil)
	_ spreader = (*Move)(nil)
	_ spreader = (*Each)(nil)
	_ spreader = (*Wrap)(nil)
	_ spreader = (*Unwrap)(nil)
)
