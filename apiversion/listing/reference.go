package listing

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// Reference is a field that holds names of resources of another service. While that one
// changes its names each of them has two, and records hold either: a comparison is met by a
// record just when one of the names is.
type Reference struct {
	// Field is its path, as filters have it: a string, or a list of such.
	Field string
	// Others returns the other names of what has a name: none where there is none. Nil: only
	// Both says.
	Others func(name string) []string
	// Both is the path of the field that lists both names of all that Field holds, for names
	// of which one does not follow from the other. Empty: there is none.
	Both string
}

// Check reports what is wrong with a reference of a message.
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

func resolved(path string, d protoreflect.MessageDescriptor) (field, error) {
	parts, err := SplitPath(path)
	if err != nil {
		return field{}, err
	}
	return resolve(d, parts)
}

// Referring returns the filter with each comparison of a reference met by either of its names.
// It is checked, as by Check. Both names are looked at when the filter is evaluated: as a text
// it is what it was.
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
			if !own.field.within(of) {
				continue
			}
			own.field.others = r.Others
			if r.Both == "" {
				return own, nil
			}
			c := *own.Condition
			if c.Path = r.Both; own.field.shape != list {
				c.Path += "." + wildcard // any of the names, compared as the one is
			}
			both, err := checked(c, d)
			return Any(own, both), err
		}
		return own, nil
	})
}

// Naming returns the filter with the other names written into it, where a reference is compared
// with whole names: for a filter that is translated into the terms of another version, which
// holds one of them. It is checked, as by Check.
func (f Filter) Naming(d protoreflect.MessageDescriptor, references []Reference) (Filter, error) {
	if len(references) == 0 {
		return f, nil
	}
	return f.Map(func(c transform.Condition) (Filter, error) {
		own, err := checked(c, d)
		if err != nil || own.Condition == nil || c.Op != transform.OpEqual && c.Op != transform.OpIn && c.Op != transform.OpContains {
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

// named is a condition of a reference with the other names of those in it.
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

// within reports whether all that a path leads to is what another one does.
func (f *field) within(of field) bool {
	return slices.EqualFunc(f.steps, of.steps, func(a, b step) bool { return a == b || b.all && a.name == "" })
}
