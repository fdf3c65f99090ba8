package lens

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// MapIndex returns the index spec for the new side that corresponds to an index of the old side, in
// the form of listIndexes. It returns an error if the index would have another meaning there; leave
// such an index out, or declare one for the new side.
func (l *Lens) MapIndex(spec bson.Raw) (bson.Raw, error) {
	var ix bson.D
	if err := bson.Unmarshal(spec, &ix); err != nil {
		return nil, fmt.Errorf("map index: %w", err)
	}
	name, _ := field(ix, "name").(string)
	out, err := l.along(l.up.Ops, "new").mapIndex(ix)
	if err != nil {
		return nil, fmt.Errorf("map index %s: %w", name, err)
	}
	raw, err := bson.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("map index %s: %w", name, err)
	}
	return raw, nil
}

// UnmapIndex returns the index spec of the old side that MapIndex maps to the given one. It returns
// an error if there is none.
func (l *Lens) UnmapIndex(spec bson.Raw) (bson.Raw, error) {
	var ix bson.D
	if err := bson.Unmarshal(spec, &ix); err != nil {
		return nil, fmt.Errorf("map index back: %w", err)
	}
	name, _ := field(ix, "name").(string)
	old, err := l.along(l.down.Ops, "old").mapIndex(ix)
	if err != nil {
		return nil, fmt.Errorf("map index %s back: %w", name, err)
	}
	raw, err := bson.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("map index %s back: %w", name, err)
	}
	// Several old indexes may map to one new index; accept the result only if it maps back exactly.
	again, err := l.MapIndex(raw)
	if err != nil || !bytes.Equal(again, spec) {
		return nil, fmt.Errorf("map index %s back: no index of the old side gives the same index there", name)
	}
	return raw, nil
}

// indexMap maps paths through operations, from either side to the other.
type indexMap struct {
	ops   []operation.Op
	rekey bool   // the _id has another form on the other side
	side  string // name of the other side, for errors
}

func (l *Lens) along(ops []operation.Op, side string) indexMap {
	return indexMap{ops: ops, rekey: l.keys != nil, side: side}
}

func field(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

func (m indexMap) mapIndex(ix bson.D) (bson.D, error) {
	key, ok := field(ix, "key").(bson.D)
	if !ok {
		return nil, errors.New("it has no key")
	}
	// A TTL index depends on the values of its field, not only on its path.
	expires := field(ix, "expireAfterSeconds") != nil
	newKey, err := m.mapPaths(key, expires)
	if err != nil {
		return nil, err
	}
	out := make(bson.D, 0, len(ix))
	// Keep all other options, in their order.
	for _, e := range ix {
		switch e.Key {
		case "key":
			e.Value = newKey
		case "name":
			// A default name follows the key. A chosen name stays.
			if e.Value == defaultName(key) {
				e.Value = defaultName(newKey)
			}
		// The keys of these documents are paths.
		case "weights", "wildcardProjection", "columnstoreProjection":
			if d, ok := e.Value.(bson.D); ok {
				if e.Value, err = m.mapPaths(d, false); err != nil {
					return nil, fmt.Errorf("%s: %w", e.Key, err)
				}
			}
		case "language_override":
			if s, ok := e.Value.(string); ok {
				if e.Value, err = m.mapPath(s, false); err != nil {
					return nil, fmt.Errorf("%s: %w", e.Key, err)
				}
			}
		case "partialFilterExpression":
			if d, ok := e.Value.(bson.D); ok {
				if e.Value, err = m.mapQuery(d); err != nil {
					return nil, fmt.Errorf("partialFilterExpression: %w", err)
				}
			}
		}
		out = append(out, e)
	}
	return out, nil
}

func defaultName(key bson.D) string {
	parts := make([]string, 0, 2*len(key))
	for _, e := range key {
		parts = append(parts, e.Key, fmt.Sprint(e.Value))
	}
	return strings.Join(parts, "_")
}

// mapPaths maps the keys of a document. With exact, the values of the fields matter, and not only
// their paths.
func (m indexMap) mapPaths(d bson.D, exact bool) (bson.D, error) {
	out := make(bson.D, 0, len(d))
	for _, e := range d {
		p, err := m.mapPath(e.Key, exact)
		if err != nil {
			return nil, err
		}
		out = append(out, bson.E{Key: p, Value: e.Value})
	}
	return out, nil
}

// mapPath returns the path on the other side.
func (m indexMap) mapPath(dotted string, exact bool) (string, error) {
	base, wildcard := strings.CutSuffix(dotted, "$**")
	// An index on _id itself exists on both sides. One on a part of it depends on its form.
	within := strings.HasPrefix(dotted, "_id.")
	if m.rekey && (within || exact && dotted == "_id") {
		return "", fmt.Errorf("the _id has another form on the %s side (key)", m.side)
	}
	if dotted == "_fts" || dotted == "_ftsx" || base == "" && wildcard || within || dotted == "_id" {
		return dotted, nil // placeholders of a text index, all fields, or the key
	}
	p, err := edit.ParsePath(strings.TrimSuffix(base, "."))
	if err != nil {
		return "", err
	}
	for _, o := range m.ops {
		next, f := o.Trace(p)
		switch {
		case f == operation.Gone:
			return "", fmt.Errorf("field %s is not there on the %s side (%s)", p, m.side, o)
		case f == operation.Clashes:
			return "", fmt.Errorf("field %s is one that the lens makes (%s)", p, o)
		case f == operation.Spread:
			return "", fmt.Errorf("field %s is made into others on the %s side (%s)", p, m.side, o)
		case f == operation.Covers:
			return "", fmt.Errorf("field %s holds others on the %s side (%s)", p, m.side, o)
		case f == operation.Converted && exact:
			return "", fmt.Errorf("field %s has other values on the %s side (%s)", p, m.side, o)
		}
		p = next
	}
	if wildcard {
		return p.String() + ".$**", nil
	}
	return p.String(), nil
}

// mapQuery maps the fields of a filter. A filter compares values, so none of its fields may be
// converted.
func (m indexMap) mapQuery(q bson.D) (bson.D, error) {
	out := make(bson.D, 0, len(q))
	for _, e := range q {
		switch e.Key {
		case "$and", "$or", "$nor":
			list, ok := e.Value.(bson.A)
			if !ok {
				return nil, fmt.Errorf("%s has no list", e.Key)
			}
			mapped := make(bson.A, 0, len(list))
			for _, part := range list {
				d, ok := part.(bson.D)
				if !ok {
					return nil, fmt.Errorf("%s holds something that is not a filter", e.Key)
				}
				sub, err := m.mapQuery(d)
				if err != nil {
					return nil, err
				}
				mapped = append(mapped, sub)
			}
			out = append(out, bson.E{Key: e.Key, Value: mapped})
			continue
		}
		// Operators such as $expr may refer to fields in ways that are not followed here.
		if strings.HasPrefix(e.Key, "$") {
			return nil, fmt.Errorf("%s cannot be carried over by a lens", e.Key)
		}
		p, err := m.mapPath(e.Key, true)
		if err != nil {
			return nil, err
		}
		out = append(out, bson.E{Key: p, Value: e.Value})
	}
	return out, nil
}

// TouchesValidator reports whether a collection's validator (a filter or {$jsonSchema}) mentions a
// field that the lens changes or makes. Such a validator cannot be reused unchanged. field is the
// mentioned field. In doubt TouchesValidator returns true: it counts every name that may be the
// field's, and every schema that forbids additional fields.
func (l *Lens) TouchesValidator(validator bson.Raw) (field string, touched bool) {
	names := map[string]string{}
	namesOf(names, l.up.Ops)
	if l.keys != nil {
		names[string(edit.FieldID)] = string(edit.FieldID)
	}
	if len(names) == 0 {
		return "", false
	}
	var doc bson.D
	if err := bson.Unmarshal(validator, &doc); err != nil {
		// In doubt, the caller must look at it.
		return "(unreadable validator)", true
	}
	return mentions(doc, names)
}

// namesOf collects the names of the fields that operations touch, with a path for each.
func namesOf(names map[string]string, ops []operation.Op) {
	for _, o := range ops {
		for _, p := range operation.PathsOf(o) {
			// A schema names each level of a path alone, so collect the outer and the inner names.
			for _, part := range []string{string(p[0]), string(p[len(p)-1])} {
				if part != edit.ItemPart {
					names[part] = p.String()
				}
			}
			if string(p[0]) == edit.ItemPart && len(p) > 1 {
				names[string(p[1])] = p.String()
			}
		}
		if e, ok := o.(*operation.Each); ok {
			namesOf(names, e.Run.Ops)
		}
	}
}

func mentions(v any, names map[string]string) (string, bool) {
	check := func(s string) (string, bool) {
		for part := range strings.SplitSeq(strings.TrimLeft(s, "$"), ".") {
			if p, ok := names[part]; ok {
				return p, true
			}
		}
		return "", false
	}
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			// The lens may add fields that such a schema forbids.
			if e.Key == "additionalProperties" && e.Value != true {
				return e.Key, true
			}
			if p, ok := check(e.Key); ok {
				return p, true
			}
			if p, ok := mentions(e.Value, names); ok {
				return p, true
			}
		}
	case bson.A:
		for _, e := range v {
			if p, ok := mentions(e, names); ok {
				return p, true
			}
		}
	case string:
		return check(v)
	}
	return "", false
}
