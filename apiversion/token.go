package apiversion

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// Token translates a page token so that the list resumes at the same record. order is the request's
// order in terms of Old. digest is the digest of the translated request.
func (r *Resource) Token(t listing.Token, order listing.Order, digest string) (listing.Token, error) {
	out := listing.Token{Digest: digest}
	var err error
	if out.Name, err = r.Name(t.Name); err != nil {
		return listing.Token{}, err
	}
	if len(t.Values) != len(order) {
		return listing.Token{}, errors.New("it does not fit the order of the request")
	}
	for i, v := range t.Values {
		path := order[i].Path
		to, err := r.orderPath(path)
		if err != nil {
			return listing.Token{}, mappingError(path, err)
		}
		if fd := leaf(r.Old, path); v != nil && fd != nil {
			// Clients can forge tokens, and conversion functions rely on the types of values.
			if v, err = listing.Coerce(v, fd); err != nil {
				return listing.Token{}, errors.New("it does not fit the order of the request")
			}
		}
		// Old shows zero for an unset field. In New the same record sorts as absent, not as zero.
		if v == nil || r.isUnset(path, v) && canBeAbsent(r.New, to) {
			out.Values = append(out.Values, unsetValue(r.New, to))
			continue
		}
		conditions, err := r.compare(transform.Condition{Path: path, Op: transform.OpEqual, Values: []any{v}})
		if err != nil {
			return listing.Token{}, mappingError(path, err)
		}
		// The value must stay one value of the same field, or the list would resume elsewhere.
		if len(conditions) != 1 || conditions[0].Path != to || conditions[0].Op != transform.OpEqual || len(conditions[0].Values) != 1 {
			return listing.Token{}, &transform.MappingError{Field: path, Reason: "its values cannot be turned into a place of the other version's order"}
		}
		out.Values = append(out.Values, conditions[0].Values[0])
	}
	return out, nil
}

// isUnset reports whether v is the value that Old shows for an unset field.
func (r *Resource) isUnset(path string, v any) bool {
	return !canBeAbsent(r.Old, path) && equalValues(v, zero(leaf(r.Old, path)))
}

// canBeAbsent reports whether a record may have no value at a path to sort by.
func canBeAbsent(d protoreflect.MessageDescriptor, path string) bool {
	fd := leaf(d, path)
	return fd == nil || fd.HasPresence() || strings.Contains(path, ".")
}

// unsetValue returns the sort value of an unset field.
func unsetValue(d protoreflect.MessageDescriptor, path string) any {
	if canBeAbsent(d, path) {
		return nil
	}
	return zero(leaf(d, path))
}
