package lens

import (
	"errors"
	"fmt"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Compare maps a comparison with keys: ==, in and startsWith for keys, contains for a list of keys.
func (o *reference) Compare(c operation.Condition) ([]operation.Condition, error) {
	if !c.Path.Overlaps(o.field) {
		return []operation.Condition{c}, nil
	}
	if !o.to.linked {
		return nil, errNotLinked
	}
	// A condition on any item of a list of keys.
	item := o.list && len(c.Path) == len(o.field)+1 && string(c.Path[len(o.field)]) == edit.ItemPart
	switch {
	// Keys that do not change, and presence, need no mapping.
	case o.to.keys == nil || c.Op == transform.OpHas:
		return []operation.Condition{c}, nil
	case o.to.keys.Unwritten(o.up):
		return nil, fmt.Errorf("it holds keys of %s, which requests cannot write", o.to.kind)
	case len(o.to.with) > 0:
		return nil, fmt.Errorf("it holds keys of %s; in the other version a part of the key is in another field", o.to.kind)
	case !item && !c.Path.Equal(o.field):
		return nil, fmt.Errorf("it holds keys of %s, which have no fields", o.to.kind)
	}
	single := item || !o.list
	switch {
	case (c.Op == transform.OpEqual || c.Op == transform.OpIn) && single, c.Op == transform.OpContains && !single:
		whole, err := o.compareWhole(c)
		if err != nil {
			return nil, err
		}
		return []operation.Condition{whole}, nil
	case c.Op == transform.OpEqual || c.Op == transform.OpIn:
		// A list equals no literal.
		c.Op, c.Values = transform.OpIn, nil
		return []operation.Condition{c}, nil
	case c.Op == transform.OpPrefix && single && !o.optional:
		begin, ok := c.Values[0].(string)
		if !ok {
			return nil, fmt.Errorf("it holds keys of %s, which are strings", o.to.kind)
		}
		// The names with this prefix must be exactly the ones with the mapped prefix.
		far, err := keymap.Way{Keys: o.to.keys, Up: o.up}.Prefix(begin)
		if err != nil {
			return nil, fmt.Errorf("it holds keys of %s, and the beginning %q cannot be mapped: %s", o.to.kind, keymap.Shortened(begin), reasonOf(err))
		}
		c.Values = []any{far}
		return []operation.Condition{c}, nil
	}
	return nil, fmt.Errorf("it holds keys of %s, which have another form in the other version: %s cannot be applied to them", o.to.kind, c.Op)
}

// compareWhole maps whole keys. It drops literals that are not keys, because no record holds them
// on either side.
func (o *reference) compareWhole(c operation.Condition) (operation.Condition, error) {
	there, back := keymap.Way{Keys: o.to.keys, Up: o.up}, keymap.Way{Keys: o.to.keys, Up: !o.up}
	src, _ := there.Source()
	dst, _ := there.Target()
	var values []any
	for _, v := range c.Values {
		id, ok := src.IdOf(v)
		if !ok {
			// Null and other values of an optional reference stay as they are.
			if v == nil || o.optional {
				values = append(values, v)
			}
			continue
		}
		if far, err := there.ID(id, scalar.ReadKey); err == nil {
			lit, ok := scalar.Literal(far)
			if !ok {
				return c, fmt.Errorf("it holds keys of %s, which in the other version are %s: requests cannot write those", o.to.kind, dst)
			}
			values = append(values, lit)
			continue
		}
		// An optional reference keeps other values, unless they are keys on the far side.
		if own, ok := dst.IdOf(v); o.optional && (!ok || back.Keeps(own)) {
			values = append(values, v)
		}
	}
	// No literal is left, so nothing matches. Only in can express that.
	if len(values) == 0 && c.Op != transform.OpIn {
		c.Op = transform.OpIn
	}
	c.Values = values
	return c, nil
}

// reasonOf returns the text of an error without its field, for an error that names another field.
func reasonOf(err error) string {
	var m *transform.MappingError
	if errors.As(err, &m) {
		return m.Reason
	}
	return err.Error()
}
