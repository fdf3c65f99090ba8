package typed

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
)

// mapping translates requests along a way.
type mapping struct{ *way }

var _ transform.Mapping = mapping{}

func refuse(field, format string, args ...any) error {
	return &transform.MappingError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func (m mapping) Name(name string) (string, error) {
	if m.names == nil {
		return name, nil
	}
	// A panic in a user function must not end the server.
	out, err := transform.Isolated(func() (string, error) { return m.names.Up(name) })
	if err != nil {
		return "", refuse(name, "the other version has no such name: %v", err)
	}
	return out, nil
}

func (m mapping) Parent(parent string) (string, error) {
	switch {
	// An empty parent lists all records, in both versions.
	case m.names == nil || parent == "":
		return parent, nil
	case m.names.UpParent == nil:
		return "", refuse(parent, "names are not grouped like this in the other version")
	}
	out, err := transform.Isolated(func() (string, error) { return m.names.UpParent(parent) })
	if err != nil {
		return "", refuse(parent, "the other version has no such parent: %v", err)
	}
	return out, nil
}

// hit finds the rule whose source field contains the path. inside is the part of the path within
// that field. ok is false if no rule concerns the path.
func (m mapping) hit(dotted string, p path) (r rule, v value, inside path, ok bool, err error) {
	for _, r := range m.rules {
		for _, v := range r.source {
			if p.within(v.path) {
				return r, v, p[len(v.path):], true, nil
			}
		}
	}
	for _, q := range m.opaque {
		if p.within(q) || q.within(p) {
			return r, v, nil, false, refuse(dotted, "it is computed from the whole record, and cannot be compared in the other version")
		}
	}
	return r, v, nil, false, m.known(dotted, p)
}

// known refuses a field that only the other version has. A record with such a field is not
// transformed either.
func (m mapping) known(dotted string, p path) error {
	if slices.ContainsFunc(m.foreign, p.within) {
		return refuse(dotted, "there is no such field in this version")
	}
	return nil
}

// single returns the one path that stands for a path in the other version. It refuses a field that
// the other version lacks, computes, or joins with another one. For a split field it returns the
// first part, and callers check the rule for more.
func (m mapping) single(dotted string) (to string, r rule, err error) {
	p := parsePath(dotted)
	r, v, inside, ok, err := m.hit(dotted, p)
	switch {
	case err != nil:
		return "", r, err
	case !ok:
		// A field inside the object may have moved. Then no single path holds the whole object.
		for _, r := range m.rules {
			for _, v := range r.source {
				if v.path.within(p) {
					return "", r, refuse(dotted, "its field %s is another one in the other version", v.path)
				}
			}
		}
		return dotted, r, nil
	case len(r.target) == 0:
		return "", r, refuse(dotted, "the other version does not have it")
	case len(r.source) > 1:
		return "", r, refuse(dotted, "in the other version it is one with %s", otherOf(r, v))
	case r.run != nil && len(inside) > 0:
		return "", r, refuse(dotted, "%s is converted as a whole", v.path)
	}
	return path(append(slices.Clone(r.target[0].path), inside...)).String(), r, nil
}

func otherOf(r rule, v value) path {
	for _, o := range r.source {
		if !slices.Equal(o.path, v.path) {
			return o.path
		}
	}
	return v.path
}

// Field maps a path in a mask. A field maps to all the fields that hold parts of it.
func (m mapping) Field(dotted string) ([]string, error) {
	p := parsePath(dotted)
	for _, q := range m.opaque {
		if p.within(q) || q.within(p) {
			// Whole computes these fields together, so a change of one may change all.
			out := make([]string, len(m.opaqueTarget))
			for i, t := range m.opaqueTarget {
				out[i] = t.String()
			}
			if len(out) == 0 {
				return nil, refuse(dotted, "the other version does not have it")
			}
			return out, nil
		}
	}
	r, v, inside, ok, err := m.hit(dotted, p)
	if err != nil {
		return nil, err
	}
	if !ok {
		return m.around(dotted, p), nil
	}
	switch {
	case len(r.target) == 0:
		return nil, refuse(dotted, "the other version does not have it")
	// The functions take the whole value, so its parts have no counterparts.
	case r.run != nil && len(inside) > 0:
		return nil, refuse(dotted, "%s is converted as a whole", v.path)
	}
	out := make([]string, len(r.target))
	for i, t := range r.target {
		out[i] = path(append(slices.Clone(t.path), inside...)).String()
	}
	return out, nil
}

// around returns the mask for a field that no rule names: the field itself if it stays, and the
// targets of rules for fields inside it.
func (m mapping) around(dotted string, p path) []string {
	var out []string
	_, typed := m.from.at(p)
	// A field that the types do not know has the same path in both versions.
	if _, stays := m.to.at(p); stays || !typed {
		out = append(out, dotted)
	}
	for _, r := range m.rules {
		if !slices.ContainsFunc(r.source, func(v value) bool { return v.path.within(p) }) {
			continue
		}
		for _, t := range r.target {
			// A target inside p is in the mask already, and each path must be there once.
			if s := t.path.String(); !t.path.within(p) && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	if len(out) == 0 {
		out = append(out, dotted)
	}
	return out
}

// Order maps a field to the field that sorts the same records in the same order.
func (m mapping) Order(dotted string) (string, error) {
	to, r, err := m.single(dotted)
	if err != nil {
		return "", err
	}
	// Only a monotone conversion into one field keeps the order of the records.
	if r.run != nil && (!r.monotone || len(r.target) > 1) {
		return "", refuse(dotted, "its values are converted, and sort in another order in the other version")
	}
	return to, nil
}

// Compare maps a comparison. It converts the literals like the values of the field.
func (m mapping) Compare(c transform.Condition) ([]transform.Condition, error) {
	to, r, err := m.single(c.Path)
	switch {
	case err != nil:
		return nil, err
	case r.run == nil:
		return []transform.Condition{{Path: to, Op: c.Op, Values: c.Values}}, nil
	case len(r.target) > 1:
		return m.compareSplit(c, r)
	}
	switch c.Op {
	case transform.OpHas:
		// Presence does not depend on the value.
		return []transform.Condition{{Path: to, Op: c.Op}}, nil
	case transform.OpEqual, transform.OpIn:
	case transform.OpLess, transform.OpLessEqual, transform.OpGreater, transform.OpGreaterEqual:
		// Only a monotone conversion keeps the order of values.
		if !r.monotone {
			return nil, refuse(c.Path, "its values are converted, and %s does not mean the same in the other version", c.Op)
		}
	case transform.OpContains, transform.OpPrefix:
		return nil, refuse(c.Path, "its values are converted, and %s does not mean the same in the other version", c.Op)
	default:
		return nil, refuse(c.Path, "%s is not known", c.Op)
	}
	out := transform.Condition{Path: to, Op: c.Op, Values: make([]any, len(c.Values))}
	for i, v := range c.Values {
		converted, err := literals(c.Path, r, v)
		if err != nil {
			return nil, err
		}
		out.Values[i] = converted[0]
	}
	return []transform.Condition{out}, nil
}

// compareSplit maps an equality to one equality for each part. Only all parts together equal the
// value.
func (m mapping) compareSplit(c transform.Condition, r rule) ([]transform.Condition, error) {
	// The returned conditions must all hold. Several values would need alternatives of such lists.
	if (c.Op != transform.OpEqual && c.Op != transform.OpIn) || len(c.Values) != 1 || c.Values[0] == nil {
		return nil, refuse(c.Path, "it is split into %s in the other version, and can only be compared for being equal to one value", targetsOf(r))
	}
	parts, err := literals(c.Path, r, c.Values[0])
	if err != nil {
		return nil, err
	}
	out := make([]transform.Condition, len(parts))
	for i, p := range parts {
		out[i] = transform.Condition{Path: r.target[i].path.String(), Op: transform.OpEqual, Values: []any{p}}
	}
	return out, nil
}

func targetsOf(r rule) string {
	out := r.target[0].path.String()
	for _, t := range r.target[1:] {
		out += " and " + t.path.String()
	}
	return out
}

// literals converts a literal like a value of the field.
func literals(field string, r rule, v any) ([]any, error) {
	// Rounding the literal would compare with another date than the request names.
	if t, ok := v.(time.Time); ok && t.Nanosecond()%int(time.Millisecond) != 0 {
		return nil, refuse(field, "dates are stored in milliseconds, and %s is none", t.Format(time.RFC3339Nano))
	}
	in, err := encodeValue(v)
	if err != nil {
		return nil, refuse(field, "%v", err)
	}
	vals, err := transform.Isolated(func() ([]bson.RawValue, error) { return r.run([]bson.RawValue{in}) })
	if err != nil {
		return nil, refuse(field, "the value cannot be expressed in the other version: %v", err)
	}
	out := make([]any, len(vals))
	for i, val := range vals {
		if out[i], err = literalOf(val); err != nil {
			return nil, refuse(field, "%v", err)
		}
	}
	return out, nil
}

func literalOf(v bson.RawValue) (any, error) {
	switch v.Type {
	case bson.TypeString:
		return v.StringValue(), nil
	case bson.TypeInt32, bson.TypeInt64:
		return v.AsInt64(), nil
	case bson.TypeDouble:
		return v.Double(), nil
	case bson.TypeBoolean:
		return v.Boolean(), nil
	case bson.TypeBinary:
		_, data := v.Binary()
		return data, nil
	case bson.TypeDateTime:
		return time.UnixMilli(v.DateTime()).UTC(), nil
	case bson.TypeNull:
		return nil, nil
	default:
		return nil, fmt.Errorf("a value of type %s cannot be compared", v.Type)
	}
}
