package apiversion

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// Filter translates a filter on Old messages.
func (r *Resource) Filter(f listing.Filter) (listing.Filter, error) {
	f, err := f.Check(r.Old)
	if err == nil {
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

// conjunction translates what has to be met together: one by one, or, where a field is
// one with others in New, those conditions as a whole.
func (r *Resource) conjunction(parts []listing.Filter) (listing.Filter, error) {
	alone := make([]listing.Filter, len(parts))
	var refused error
	var shared []string // the fields of New that refused conditions are about
	for i, p := range parts {
		var err error
		if alone[i], err = r.filter(p); err == nil {
			continue
		}
		if refused == nil {
			refused = err
		}
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
	return listing.Filter{}, refused
}

// held are the fields of New that hold a field of Old, none where that is not known.
func (r *Resource) held(path string) []string {
	if path == string(r.OldName) {
		return nil // names are not compared by the mapping of fields
	}
	paths, err := r.UpMapping.Field(path)
	if err != nil {
		return nil
	}
	return paths
}

// condition translates one condition. A list of values that is no one comparison in New
// may be several.
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

// all is what some conditions have become, as a filter on New.
func (r *Resource) all(from, conditions []transform.Condition) (listing.Filter, error) {
	path := from[0].Path
	all := make([]listing.Filter, len(conditions))
	for i := range conditions {
		var err error
		all[i], err = listing.Where(conditions[i]).Check(r.New)
		if err != nil && conditions[i].Op == transform.OpIn && len(conditions[i].Values) == 0 {
			all[i], err = listing.Any(), nil // nothing is met, of a list as well, which has no "in"
		}
		if err != nil {
			return listing.Filter{}, &transform.MappingError{Field: path, Reason: "cannot be compared so in the other version: " + err.Error()}
		}
		if conditions[i].Op == transform.OpHas && (all[i].Condition == nil || all[i].Condition.Op != transform.OpHas) {
			return listing.Filter{}, &transform.MappingError{Field: path, Reason: "is always there in the other version, whether it was set or not"}
		}
	}
	return r.unset(from, conditions, listing.All(all...))
}

// unset makes a translated filter match what is not set in New exactly if the filter matches
// what Old shows then: a field without presence shows its zero value.
func (r *Resource) unset(from, conditions []transform.Condition, f listing.Filter) (listing.Filter, error) {
	if r.emptyShown == nil {
		return f, nil
	}
	before := make([]listing.Filter, len(from))
	for i := range from {
		before[i] = listing.Where(from[i])
	}
	want, empty := listing.All(before...).Eval(r.emptyShown), dynamicpb.NewMessage(r.New)
	if f.Eval(empty) == want {
		return f, nil
	}
	wider := f
	for _, c := range conditions {
		if has, err := listing.Where(transform.Condition{Path: c.Path, Op: transform.OpHas}).Check(r.New); err == nil && want && has.Condition != nil {
			wider = listing.Any(wider, listing.Negate(has))
		}
	}
	if len(conditions) != 1 || wider.Eval(empty) != want {
		return listing.Filter{}, &transform.MappingError{Field: from[0].Path, Reason: "means something else in the other version where it is not set"}
	}
	return wider, nil
}

// compare maps a condition; those on the name follow the mapping of names.
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

// partOfName maps a comparison with what need not be a whole name. Only a mapping that
// knows the field to hold names changes the value.
func (r *Resource) partOfName(c transform.Condition) ([]transform.Condition, error) {
	out, err := r.UpMapping.Compare(c)
	if err != nil {
		return nil, err
	}
	if len(out) == 1 && (len(out[0].Values) == 0 || equalValues(out[0].Values[0], c.Values[0])) {
		return nil, &transform.MappingError{Field: c.Path, Reason: "names differ in the other version: use ==, in, or startsWith() with a parent and a slash"}
	}
	return out, nil
}

// mappingError names the field of the request, and what a mapping reports about it.
func mappingError(path string, err error) error {
	m := new(transform.MappingError)
	if errors.As(err, &m) {
		return m
	}
	return &transform.MappingError{Field: path, Reason: err.Error()}
}

// reasonOf is the reason that a mapping reports, without the name of the field.
func reasonOf(err error) string {
	m := new(transform.MappingError)
	if errors.As(err, &m) {
		return m.Reason
	}
	return err.Error()
}
