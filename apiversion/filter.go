package apiversion

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// Filter translates a filter on Old messages into a filter on New messages. It checks the filter
// first. Errors name fields of Old.
func (r *Resource) Filter(f listing.Filter) (listing.Filter, error) {
	f, err := f.Check(r.Old)
	if err == nil {
		// New may hold either name of a referenced resource, so the filter must list both.
		f, err = f.Naming(r.Old, r.References)
	}
	if err != nil {
		return listing.Filter{}, err
	}
	return r.filter(f)
}

func (r *Resource) filter(f listing.Filter) (listing.Filter, error) {
	switch {
	case f.Condition != nil:
		return r.condition(*f.Condition)
	case f.Not != nil:
		inner, err := r.filter(*f.Not)
		return listing.Negate(inner), err
	case len(f.Or) > 0:
		parts := make([]listing.Filter, len(f.Or))
		for i := range f.Or {
			var err error
			if parts[i], err = r.filter(f.Or[i]); err != nil {
				return listing.Filter{}, err
			}
		}
		return listing.Any(parts...), nil
	default:
		return r.conjunction(f.And)
	}
}

// conjunction translates conditions that must all hold. It first translates each one alone. If New
// joins several fields of Old into one, it translates the conditions on them together.
func (r *Resource) conjunction(parts []listing.Filter) (listing.Filter, error) {
	alone := make([]listing.Filter, len(parts))
	var refused error
	var shared []string // fields of New behind the refused conditions
	for i, p := range parts {
		var err error
		if alone[i], err = r.filter(p); err == nil {
			continue
		}
		if refused == nil {
			refused = err
		}
		// Only plain conditions can be joined. A refused subtree is final.
		if p.Condition == nil {
			return listing.Filter{}, err
		}
		held := r.held(p.Condition.Path)
		if len(held) == 0 {
			return listing.Filter{}, refused
		}
		shared = append(shared, held...)
	}
	if refused == nil {
		return listing.All(alone...), nil
	}
	// Also take conditions that translate alone: the joined field needs all of its parts.
	isShared := func(path string) bool { return slices.Contains(shared, path) }
	var out []listing.Filter
	var together []transform.Condition
	for i, p := range parts {
		if p.Condition != nil && slices.ContainsFunc(r.held(p.Condition.Path), isShared) {
			together = append(together, *p.Condition)
		} else {
			out = append(out, alone[i])
		}
	}
	if m, ok := r.UpMapping.(transform.ConjunctionMapping); ok && len(together) > 1 {
		if conditions, err := m.CompareAll(together); err == nil {
			f, err := r.all(together, conditions)
			return listing.All(append(out, f)...), err
		}
	}
	// The first refusal is the clearest: it names the field that the client wrote first.
	return listing.Filter{}, refused
}

// held returns the fields of New that hold a field of Old. It returns none if the mapping does not
// know.
func (r *Resource) held(path string) []string {
	if path == string(r.OldName) {
		return nil // names follow the mapping of names instead
	}
	paths, err := r.UpMapping.Field(path)
	if err != nil {
		return nil
	}
	return paths
}

// condition translates one condition. If New cannot compare with the whole list of an "in", it
// tries each value and joins the results.
func (r *Resource) condition(c transform.Condition) (listing.Filter, error) {
	f, err := r.one(c)
	if err == nil || c.Op != transform.OpIn {
		return f, err
	}
	var each []listing.Filter
	for _, v := range c.Values {
		f, oneErr := r.one(transform.Condition{Path: c.Path, Op: transform.OpEqual, Values: []any{v}})
		if oneErr != nil {
			return listing.Filter{}, err
		}
		each = append(each, f)
	}
	return listing.Any(each...), nil
}

func (r *Resource) one(c transform.Condition) (listing.Filter, error) {
	conditions, err := r.compare(c)
	if err != nil {
		return listing.Filter{}, mappingError(c.Path, err)
	}
	return r.all([]transform.Condition{c}, conditions)
}

// all checks translated conditions against New and joins them. from holds their originals, for
// errors and for unset.
func (r *Resource) all(from, conditions []transform.Condition) (listing.Filter, error) {
	path := from[0].Path
	all := make([]listing.Filter, len(conditions))
	for i := range conditions {
		var err error
		all[i], err = listing.Where(conditions[i]).Check(r.New)
		if err != nil && conditions[i].Op == transform.OpIn && len(conditions[i].Values) == 0 {
			all[i], err = listing.Any(), nil // an empty "in" matches nothing, but lists refuse it
		}
		if err != nil {
			return listing.Filter{}, &transform.MappingError{Field: path, Reason: "cannot be compared so in the other version: " + err.Error()}
		}
		// Check turns has() of a field without presence into a comparison with zero. That would
		// miss a value that was set to zero.
		if conditions[i].Op == transform.OpHas && (all[i].Condition == nil || all[i].Condition.Op != transform.OpHas) {
			return listing.Filter{}, &transform.MappingError{Field: path, Reason: "is always there in the other version, whether it was set or not"}
		}
	}
	return r.unset(from, conditions, listing.All(all...))
}

// unset widens a translated filter so that unset New fields match exactly if the zero values that
// Old shows for them match.
func (r *Resource) unset(from, conditions []transform.Condition, f listing.Filter) (listing.Filter, error) {
	if r.emptyShown == nil {
		return f, nil
	}
	before := make([]listing.Filter, len(from))
	for i := range from {
		before[i] = listing.Where(from[i])
	}
	// Evaluate both filters on an empty record, as each version shows it. They must agree.
	want, empty := listing.All(before...).Eval(r.emptyShown), dynamicpb.NewMessage(r.New)
	if f.Eval(empty) == want {
		return f, nil
	}
	// The usual fix: also match records in which the field is absent.
	wider := f
	for _, c := range conditions {
		if has, err := listing.Where(transform.Condition{Path: c.Path, Op: transform.OpHas}).Check(r.New); err == nil && want && has.Condition != nil {
			wider = listing.Any(wider, listing.Negate(has))
		}
	}
	// With several conditions the absence of one field says nothing about the others.
	if len(conditions) != 1 || wider.Eval(empty) != want {
		return listing.Filter{}, &transform.MappingError{Field: from[0].Path, Reason: "means something else in the other version where it is not set"}
	}
	return wider, nil
}

// compare maps a condition. Conditions on the name follow the mapping of names.
func (r *Resource) compare(c transform.Condition) ([]transform.Condition, error) {
	if r.OldName == "" || c.Path != string(r.OldName) {
		return r.UpMapping.Compare(c)
	}
	out := transform.Condition{Path: string(r.NewName), Op: c.Op}
	if r.NewName == "" {
		return nil, &transform.MappingError{Field: c.Path, Reason: "is no field of the other version"}
	}
	for _, v := range c.Values {
		name, _ := v.(string)
		var err error
		switch {
		case r.SameNames:
		case c.Op == transform.OpEqual || c.Op == transform.OpIn:
			name, err = r.Name(name)
		// A prefix that ends in a slash is a whole parent, which the mapping can translate.
		case c.Op == transform.OpPrefix && strings.HasSuffix(name, "/"):
			name, err = r.Parent(strings.TrimSuffix(name, "/"))
			name += "/"
		default:
			return r.partOfName(c)
		}
		if err != nil {
			return nil, &transform.MappingError{Field: c.Path, Reason: reasonOf(err)}
		}
		out.Values = append(out.Values, name)
	}
	return []transform.Condition{out}, nil
}

// partOfName maps a comparison with a text that need not be a whole name. It succeeds only if the
// field mapping changes the value, which shows that it knows names.
func (r *Resource) partOfName(c transform.Condition) ([]transform.Condition, error) {
	out, err := r.UpMapping.Compare(c)
	if err != nil {
		return nil, err
	}
	// An unchanged value would silently compare old text with new names.
	if len(out) == 1 && (len(out[0].Values) == 0 || equalValues(out[0].Values[0], c.Values[0])) {
		return nil, &transform.MappingError{Field: c.Path, Reason: "names differ in the other version: use ==, in, or startsWith() with a parent and a slash"}
	}
	return out, nil
}

// mappingError returns err as a MappingError. It adds the field of the request if the mapping did
// not name one.
func mappingError(path string, err error) error {
	m := new(transform.MappingError)
	if errors.As(err, &m) {
		return m
	}
	return &transform.MappingError{Field: path, Reason: err.Error()}
}

// reasonOf returns the reason in an error of a mapping, without the field name.
func reasonOf(err error) string {
	m := new(transform.MappingError)
	if errors.As(err, &m) {
		return m.Reason
	}
	return err.Error()
}
