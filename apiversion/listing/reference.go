package listing

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// Reference declares a field that holds names of another service's resources. While that service
// renames its resources, each of them has two names, and records may hold either. A filter with one
// of the names must match records with the other.
type Reference struct {
	// Field is the path of the field, in filter syntax. It is a string or a list of strings.
	Field string
	// Others returns the other names of a resource name, or none. Nil: only Both gives them.
	Others func(name string) []string
	// Both is the path of a list field that holds both names of everything in Field. Use it if one
	// name does not follow from the other. Empty: there is no such field.
	Both string
}

// Check returns an error if the reference does not fit a message type, or has neither Others nor
// Both.
func (r Reference) Check(d protoreflect.MessageDescriptor) error {
	f, err := resolved(r.Field, d)
	switch {
	case err != nil:
		return err
	case f.shape == entries || typeOf(f.fd) != textType:
		return fmt.Errorf("%s is no string and no list of strings: it holds no names", r.Field)
	case r.Others == nil && r.Both == "":
		return fmt.Errorf("%s: set Others or Both: nothing says which other names there are", r.Field)
	case r.Both == "":
		return nil
	}
	both, err := resolved(r.Both, d)
	if err != nil {
		return err
	}
	if both.shape != list || typeOf(both.fd) != textType {
		return fmt.Errorf("%s is no list of strings: it cannot hold both names of %s", r.Both, r.Field)
	}
	return nil
}

// resolved finds a path in filter syntax below a message type.
func resolved(path string, d protoreflect.MessageDescriptor) (field, error) {
	parts, err := SplitPath(path)
	if err != nil {
		return field{}, err
	}
	return resolve(d, parts)
}

// Referring returns a filter whose comparisons with a reference also match the other names of the
// compared resource. Eval looks these names up, so the text of the filter stays the same. Referring
// checks the filter as Check does. Without references it returns f unchanged.
func (f Filter) Referring(d protoreflect.MessageDescriptor, references []Reference) (Filter, error) {
	if len(references) == 0 {
		return f, nil
	}
	return f.Map(func(c transform.Condition) (Filter, error) {
		own, err := checked(c, d)
		if err != nil || own.Condition == nil || c.Op == transform.OpHas {
			return own, err
		}
		for _, r := range references {
			of, err := resolved(r.Field, d)
			if err != nil {
				return Filter{}, err
			}
			// The condition is on another field.
			if !own.field.within(of) {
				continue
			}
			// Each call of checked makes a new field, so this changes no other filter.
			own.field.others = r.Others
			if r.Both == "" {
				return own, nil
			}
			c := *own.Condition
			if c.Path = r.Both; own.field.shape != list {
				c.Path += "." + wildcard // compare each of the names, as the field itself
			}
			both, err := checked(c, d)
			return Any(own, both), err
		}
		return own, nil
	})
}

// Naming returns the filter with the other names written into its text: a comparison of a reference
// with a whole name (==, in, contains) also names the other names. It serves the translation into
// another version, whose records may hold either name. Naming uses only Reference.Others. It checks
// the filter as Check does. Without references it returns f unchanged.
func (f Filter) Naming(d protoreflect.MessageDescriptor, references []Reference) (Filter, error) {
	if len(references) == 0 {
		return f, nil
	}
	return f.Map(func(c transform.Condition) (Filter, error) {
		own, err := checked(c, d)
		if err != nil || own.Condition == nil || c.Op != transform.OpEqual && c.Op != transform.OpIn && c.Op != transform.OpContains {
			// A part of a name has no counterpart in the other names.
			return own, err
		}
		for _, r := range references {
			of, err := resolved(r.Field, d)
			if err != nil {
				return Filter{}, err
			}
			if own.field.within(of) && r.Others != nil {
				return own.named(r.Others, d)
			}
		}
		return own, nil
	})
}

// named adds the other names to a condition on a reference.
func (f Filter) named(others func(string) []string, d protoreflect.MessageDescriptor) (Filter, error) {
	c := *f.Condition
	var more []any
	for _, v := range c.Values {
		if name, ok := v.(string); ok {
			for _, other := range others(name) {
				more = append(more, other)
			}
		}
	}
	switch {
	case len(more) == 0 || c.Op == transform.OpContains && f.field.shape != list:
		return f, nil
	// contains() takes one value, so each name needs a condition of its own.
	case c.Op == transform.OpContains:
		either := []Filter{f}
		for _, other := range more {
			c.Values = []any{other}
			with, err := checked(c, d)
			if err != nil {
				return Filter{}, err
			}
			either = append(either, with)
		}
		return Any(either...), nil
	}
	c.Op, c.Values = transform.OpIn, append(slices.Clone(c.Values), more...)
	return checked(c, d)
}

// within reports whether f selects only values of the other path.
func (f *field) within(of field) bool {
	return slices.EqualFunc(f.steps, of.steps, func(a, b step) bool { return a == b || b.all && a.name == "" })
}
