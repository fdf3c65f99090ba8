package operation

import (
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
)

func (o *Calc) fieldsOf(p edit.Path) ([]edit.Path, error) {
	_, f := o.Trace(p)
	switch f {
	case Spread:
		return o.To, nil
	case Clashes:
		return nil, f.reason(o)
	case Covers:
		if slices.ContainsFunc(o.From, func(q edit.Path) bool { return q.Under(p) }) {
			// The object loses the calculated fields, so ask for their results as well.
			return append([]edit.Path{p}, o.To...), nil
		}
	}
	return []edit.Path{p}, nil
}

// compareAll maps a comparison of a split string to one for each part, and comparisons of joined
// parts to one of the whole.
func (o *Calc) compareAll(cs []Condition) ([]Condition, error) {
	var out []Condition
	// Comparisons with parts of a join are collected, and mapped together below.
	parts := make([]*Condition, len(o.From))
	for i := range cs {
		c := &cs[i]
		_, f := o.Trace(c.Path)
		at := slices.IndexFunc(o.From, c.Path.Equal)
		switch {
		case f == kept:
			out = append(out, *c)
		case f != Spread:
			return nil, f.reason(o)
		case o.Parted == nil:
			return nil, fmt.Errorf("it is calculated from other fields in the other version, so that a comparison cannot be mapped (%s)", o)
		case at < 0:
			return nil, fmt.Errorf("it lies in %s, which is a string (%s)", o.From[0], o)
		case c.Op == transform.OpHas || c.Op == transform.OpEqual && c.onNull():
			// All of the fields are present or none is, and all are null or none is.
			for _, to := range o.To {
				out = append(out, c.at(to)...)
			}
		case c.Op == transform.OpPrefix && !o.joined:
			start, err := o.comparePrefix(*c)
			if err != nil {
				return nil, err
			}
			out = append(out, start...)
		case c.Op != transform.OpEqual && c.Op != transform.OpIn:
			return nil, fmt.Errorf("only ==, in and has can be mapped, and startsWith where it is split (%s)", o)
		// Several values of a part would need several values of the whole, which a conjunction
		// cannot express.
		case o.joined && (parts[at] != nil || c.Op == transform.OpIn):
			return nil, fmt.Errorf("only one == can be mapped (%s)", o)
		case o.joined:
			parts[at] = c
		default:
			split, err := o.compareWhole(*c)
			if err != nil {
				return nil, err
			}
			out = append(out, split...)
		}
	}
	// Comparisons of parts are mapped together, because only a complete prefix of the whole is
	// exact.
	joined, err := o.compareParts(parts)
	return append(out, joined...), err
}

// compareWhole maps == or in of a split string.
func (o *Calc) compareWhole(c Condition) ([]Condition, error) {
	var found [][]string
	for _, v := range c.Values {
		s, ok := v.(string)
		if v == nil {
			return nil, fmt.Errorf("null among other values cannot be mapped (%s)", o)
		}
		if !ok {
			continue // no string equals it
		}
		// A string that cannot be split is parked, so nothing equals it.
		if parts, err := o.Parted.take(s); err == nil && !slices.ContainsFunc(found, func(f []string) bool { return slices.Equal(f, parts) }) {
			found = append(found, parts)
		}
	}
	switch len(found) {
	case 0:
		return nothing(o.To[0]), nil
	case 1:
		out := make([]Condition, len(o.To))
		for i, to := range o.To {
			out[i] = Condition{to, transform.OpEqual, []any{found[0][i]}}
		}
		return out, nil
	}
	return nil, fmt.Errorf("only one value can be mapped, for it is split (%s)", o)
}

// comparePrefix maps startsWith of a split string: == for the parts that the prefix contains
// completely, and startsWith for the next part.
func (o *Calc) comparePrefix(c Condition) ([]Condition, error) {
	prefix, ok := c.Values[0].(string)
	if !ok {
		return nothing(o.To[0]), nil
	}
	s, limit := o.Parted, -1
	if s.Rest {
		limit = s.Parts
	}
	start := strings.SplitN(prefix, s.Separator, limit)
	last := len(start) - 1
	// More separators than a valid string has.
	if last >= s.Parts {
		return nothing(o.To[0]), nil
	}
	// A prefix that ends within a separator would also match a part with that ending.
	for n := 1; n < len(s.Separator) && last < s.Parts-1; n++ {
		if strings.HasSuffix(start[last], s.Separator[:n]) {
			return nil, fmt.Errorf("%q may end within a separator (%s)", prefix, o)
		}
	}
	var out []Condition
	for i, part := range start[:last] {
		out = append(out, Condition{o.To[i], transform.OpEqual, []any{part}})
	}
	// An empty beginning matches every part.
	if start[last] != "" || last == 0 {
		out = append(out, Condition{o.To[last], transform.OpPrefix, []any{start[last]}})
	}
	return out, nil
}

// compareParts maps == of the first parts, or of all parts.
func (o *Calc) compareParts(parts []*Condition) ([]Condition, error) {
	// known counts the leading parts with a comparison.
	known := slices.IndexFunc(parts, func(c *Condition) bool { return c == nil })
	if known < 0 {
		known = len(parts)
	}
	if slices.ContainsFunc(parts[known:], func(c *Condition) bool { return c != nil }) {
		return nil, fmt.Errorf("%s is joined into %s: it can be compared only together with %s", PathNames(o.From), o.To[0], o.From[known])
	}
	if known == 0 {
		return nil, nil
	}
	texts := make([]string, known)
	for i, c := range parts[:known] {
		s, ok := c.Values[0].(string)
		last := i == len(parts)-1
		if !ok || strings.Contains(s, o.Parted.Separator) && !(last && o.Parted.Rest) {
			return nothing(o.To[0]), nil
		}
		texts[i] = s
	}
	s := o.Parted
	whole := strings.Join(texts, s.Separator)
	// Split the whole again: parts may contain text that splits in another way.
	if known == len(parts) {
		if again, err := s.take(whole); err != nil || !slices.Equal(again, texts) {
			return nothing(o.To[0]), nil
		}
		return []Condition{{o.To[0], transform.OpEqual, []any{whole}}}, nil
	}
	// The separator ends the last known part. Without it, longer parts would match too.
	whole += s.Separator
	if again := strings.SplitN(whole, s.Separator, known+1); !slices.Equal(again[:known], texts) || again[known] != "" {
		return nothing(o.To[0]), nil
	}
	return []Condition{{o.To[0], transform.OpPrefix, []any{whole}}}, nil
}

var (
	_ conjunctionComparer = (*Calc)(nil)
	_ spreader            = (*Calc)(nil)
)
