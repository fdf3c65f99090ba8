package lens

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// equalityOf returns the comparison of a field with mapped literals: == for one, in for several.
func equalityOf(p edit.Path, lits []any) []condition {
	if len(lits) == 1 {
		return []condition{{p, transform.OpEqual, lits}}
	}
	return []condition{{p, transform.OpIn, lits}}
}

func (o *convert) compare(c condition) ([]condition, error) {
	switch {
	case !c.path.Overlaps(o.field) || c.path.Equal(o.field) && c.op == transform.OpHas:
		return c.at(c.path), nil
	case !c.path.Under(o.field):
		return nil, covers.reason(o)
	case !c.path.Equal(o.field):
		return nil, fmt.Errorf("it lies in %s, which is a single value (%s)", o.field, o)
	}
	if o.rounding {
		return nil, fmt.Errorf("dates of one second are one value in the other version (%s)", o)
	}
	switch c.op {
	case transform.OpEqual, transform.OpIn:
		var out []any
		for _, v := range c.values {
			lits, err := scalar.LiteralsOf(v, o.from, o.to)
			if err != nil {
				return nil, fmt.Errorf("%w (%s)", err, o)
			}
			out = append(out, lits...)
		}
		return equalityOf(c.path, out), nil
	case transform.OpContains, transform.OpPrefix:
		return nil, fmt.Errorf("%w, < and the like where the types sort the same (%s)", errEqualOnly, o)
	}
	if !o.KeepsOrder() {
		return nil, fmt.Errorf("the types do not sort the same, so that %w (%s)", errEqualOnly, o)
	}
	// An ordering comparison needs one bound in the other type.
	v, err := o.bound(c)
	if err != nil || v == nil {
		return nothing(c.path), err
	}
	c.values = []any{v}
	return c.at(c.path), nil
}

// KeepsOrder reports whether both types sort the same. Numbers of all types sort together, and
// dates sort like their seconds.
func (o *convert) KeepsOrder() bool {
	if o.rounding {
		return false
	}
	if slices.Contains(scalar.Numbers, o.from) {
		return slices.Contains(scalar.Numbers, o.to)
	}
	return o.from == scalar.Date && o.to == scalar.Epoch || o.from == scalar.Epoch && o.to == scalar.Date
}

// bound maps the literal of an ordering comparison. It returns nil if the field never compares with
// it.
func (o *convert) bound(c condition) (any, error) {
	v := c.values[0]
	if v == nil {
		return nil, fmt.Errorf("null sorts nowhere (%s)", o)
	}
	var at *big.Rat // in seconds
	if t, ok := v.(time.Time); ok && o.from == scalar.Date {
		at = new(big.Rat).SetFrac(new(big.Int).Add(new(big.Int).Mul(big.NewInt(t.Unix()), big.NewInt(1e9)), big.NewInt(int64(t.Nanosecond()))), big.NewInt(1e9))
	} else if n, ok := scalar.Rational(v); ok && o.from != scalar.Date {
		if o.from != scalar.Epoch {
			lits, err := scalar.LiteralsOfNumber(v, o.from, o.to)
			if err != nil || len(lits) == 0 {
				return nil, err
			}
			return lits[0], nil
		}
		at = n
	} else if o.from != scalar.Date && scalar.IsFloat(v) {
		return nil, fmt.Errorf("NaN and the infinities cannot be mapped (%s)", o)
	} else {
		return nil, nil
	}
	// Both sides have only whole seconds, so round the bound to the next one.
	s, rest := new(big.Int).DivMod(at.Num(), at.Denom(), new(big.Int))
	if rest.Sign() != 0 && (c.op == transform.OpLess || c.op == transform.OpGreaterEqual) {
		s.Add(s, big.NewInt(1))
	}
	if !s.IsInt64() || s.CmpAbs(big.NewInt(math.MaxInt64/1000)) > 0 {
		return nil, fmt.Errorf("the time is out of range (%s)", o)
	}
	if o.to == scalar.Epoch {
		return s.Int64(), nil
	}
	return time.Unix(s.Int64(), 0).UTC(), nil
}

func (o *table) compare(c condition) ([]condition, error) {
	switch {
	case !c.path.Overlaps(o.field) || c.path.Equal(o.field) && c.op == transform.OpHas:
		return c.at(c.path), nil
	case !c.path.Under(o.field):
		return nil, covers.reason(o)
	case !c.path.Equal(o.field):
		return nil, fmt.Errorf("it lies in %s, which is a single value (%s)", o.field, o)
	case c.op != transform.OpEqual && c.op != transform.OpIn:
		return nil, fmt.Errorf("%w (%s)", errEqualOnly, o)
	}
	var out []any
	// A table leaves null unchanged.
	if c.onNull() {
		out = append(out, nil)
	}
	meant := map[string]bool{} // keys of the matching new values
	for _, was := range o.back {
		// Convert each matching value of the table by itself.
		lit, ok := scalar.Literal(was)
		if !ok || !slices.ContainsFunc(c.values, func(v any) bool { return scalar.SameLiteral(v, lit) }) {
			continue
		}
		now := o.there[edit.ValueKey(was)]
		lit, ok = scalar.Literal(now)
		if !ok {
			return nil, fmt.Errorf("%s becomes %s, which requests cannot write (%s)", was, now, o)
		}
		meant[edit.ValueKey(now)] = true
		out = append(out, lit)
	}
	// Several values may equal one literal and differ only in type. A request cannot select one of
	// them.
	for _, now := range o.there {
		lit, ok := scalar.Literal(now)
		if ok && !meant[edit.ValueKey(now)] && slices.ContainsFunc(out, func(v any) bool { return scalar.SameLiteral(v, lit) }) {
			return nil, fmt.Errorf("the table has values that only differ in their types (%s)", o)
		}
	}
	// Maps iterate in random order. Sort, so that equal requests map to equal requests.
	slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprintf("%T%v", a, a), fmt.Sprintf("%T%v", b, b)) })
	return equalityOf(c.path, out), nil
}

var (
	_ comparer = (*convert)(nil)
	_ comparer = (*table)(nil)
	_ sorter   = (*convert)(nil)
)
