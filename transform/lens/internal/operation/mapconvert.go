package operation

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
func equalityOf(p edit.Path, lits []any) []Condition {
	if len(lits) == 1 {
		return []Condition{{p, transform.OpEqual, lits}}
	}
	return []Condition{{p, transform.OpIn, lits}}
}

func (o *Convert) Compare(c Condition) ([]Condition, error) {
	switch {
	case !c.Path.Overlaps(o.Field) || c.Path.Equal(o.Field) && c.Op == transform.OpHas:
		return c.at(c.Path), nil
	case !c.Path.Under(o.Field):
		return nil, Covers.reason(o)
	case !c.Path.Equal(o.Field):
		return nil, fmt.Errorf("it lies in %s, which is a single value (%s)", o.Field, o)
	}
	if o.Rounding {
		return nil, fmt.Errorf("dates of one second are one value in the other version (%s)", o)
	}
	switch c.Op {
	case transform.OpEqual, transform.OpIn:
		var out []any
		for _, v := range c.Values {
			lits, err := scalar.LiteralsOf(v, o.From, o.To)
			if err != nil {
				return nil, fmt.Errorf("%w (%s)", err, o)
			}
			out = append(out, lits...)
		}
		return equalityOf(c.Path, out), nil
	case transform.OpContains, transform.OpPrefix:
		return nil, fmt.Errorf("%w, < and the like where the types sort the same (%s)", errEqualOnly, o)
	}
	if !o.KeepsOrder() {
		return nil, fmt.Errorf("the types do not sort the same, so that %w (%s)", errEqualOnly, o)
	}
	// An ordering comparison needs one bound in the other type.
	v, err := o.bound(c)
	if err != nil || v == nil {
		return nothing(c.Path), err
	}
	c.Values = []any{v}
	return c.at(c.Path), nil
}

// KeepsOrder reports whether both types sort the same. Numbers of all types sort together, and
// dates sort like their seconds.
func (o *Convert) KeepsOrder() bool {
	if o.Rounding {
		return false
	}
	if slices.Contains(scalar.Numbers, o.From) {
		return slices.Contains(scalar.Numbers, o.To)
	}
	return o.From == scalar.Date && o.To == scalar.Epoch || o.From == scalar.Epoch && o.To == scalar.Date
}

// bound maps the literal of an ordering comparison. It returns nil if the field never compares with
// it.
func (o *Convert) bound(c Condition) (any, error) {
	v := c.Values[0]
	if v == nil {
		return nil, fmt.Errorf("null sorts nowhere (%s)", o)
	}
	var at *big.Rat // in seconds
	if t, ok := v.(time.Time); ok && o.From == scalar.Date {
		at = new(big.Rat).SetFrac(new(big.Int).Add(new(big.Int).Mul(big.NewInt(t.Unix()), big.NewInt(1e9)), big.NewInt(int64(t.Nanosecond()))), big.NewInt(1e9))
	} else if n, ok := scalar.Rational(v); ok && o.From != scalar.Date {
		if o.From != scalar.Epoch {
			lits, err := scalar.LiteralsOfNumber(v, o.From, o.To)
			if err != nil || len(lits) == 0 {
				return nil, err
			}
			return lits[0], nil
		}
		at = n
	} else if o.From != scalar.Date && scalar.IsFloat(v) {
		return nil, fmt.Errorf("NaN and the infinities cannot be mapped (%s)", o)
	} else {
		return nil, nil
	}
	// Both sides have only whole seconds, so round the bound to the next one.
	s, rest := new(big.Int).DivMod(at.Num(), at.Denom(), new(big.Int))
	if rest.Sign() != 0 && (c.Op == transform.OpLess || c.Op == transform.OpGreaterEqual) {
		s.Add(s, big.NewInt(1))
	}
	if !s.IsInt64() || s.CmpAbs(big.NewInt(math.MaxInt64/1000)) > 0 {
		return nil, fmt.Errorf("the time is out of range (%s)", o)
	}
	if o.To == scalar.Epoch {
		return s.Int64(), nil
	}
	return time.Unix(s.Int64(), 0).UTC(), nil
}

func (o *Table) Compare(c Condition) ([]Condition, error) {
	switch {
	case !c.Path.Overlaps(o.Field) || c.Path.Equal(o.Field) && c.Op == transform.OpHas:
		return c.at(c.Path), nil
	case !c.Path.Under(o.Field):
		return nil, Covers.reason(o)
	case !c.Path.Equal(o.Field):
		return nil, fmt.Errorf("it lies in %s, which is a single value (%s)", o.Field, o)
	case c.Op != transform.OpEqual && c.Op != transform.OpIn:
		return nil, fmt.Errorf("%w (%s)", errEqualOnly, o)
	}
	var out []any
	// A table leaves null unchanged.
	if c.onNull() {
		out = append(out, nil)
	}
	meant := map[string]bool{} // keys of the matching new values
	for _, was := range o.Back {
		// Convert each matching value of the table by itself.
		lit, ok := scalar.Literal(was)
		if !ok || !slices.ContainsFunc(c.Values, func(v any) bool { return scalar.SameLiteral(v, lit) }) {
			continue
		}
		now := o.There[edit.ValueKey(was)]
		lit, ok = scalar.Literal(now)
		if !ok {
			return nil, fmt.Errorf("%s becomes %s, which requests cannot write (%s)", was, now, o)
		}
		meant[edit.ValueKey(now)] = true
		out = append(out, lit)
	}
	// Several values may equal one literal and differ only in type. A request cannot select one of
	// them.
	for _, now := range o.There {
		lit, ok := scalar.Literal(now)
		if ok && !meant[edit.ValueKey(now)] && slices.ContainsFunc(out, func(v any) bool { return scalar.SameLiteral(v, lit) }) {
			return nil, fmt.Errorf("the table has values that only differ in their types (%s)", o)
		}
	}
	// Maps iterate in random order. Sort, so that equal requests map to equal requests.
	slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprintf("%T%v", a, a), fmt.Sprintf("%T%v", b, b)) })
	return equalityOf(c.Path, out), nil
}

var (
	_ Comparer = (*Convert)(nil)
	_ Comparer = (*Table)(nil)
	_ sorter   = (*Convert)(nil)
)
