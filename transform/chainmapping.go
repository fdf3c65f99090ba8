package transform

import "errors"

// Mappings combines several mappings to one, as a chain combines transformers. The first mapping
// takes the request's version. Errors name the field of the request, not of a version in between.
func Mappings(ms ...Mapping) Mapping {
	switch len(ms) {
	case 0:
		return Identity{}
	case 1:
		return ms[0]
	default:
		return mappings(ms)
	}
}

type mappings []Mapping

// asked rewrites an error about an inner version's field into one about the requested field.
func asked(field string, err error) error {
	var refused *MappingError
	if !errors.As(err, &refused) || refused.Field == field {
		return err
	}
	return &MappingError{Field: field, Reason: "in a version in between: " + refused.Error()}
}

func (ms mappings) Name(name string) (string, error) {
	return ms.each(name, func(m Mapping, s string) (string, error) { return m.Name(s) })
}

func (ms mappings) Parent(parent string) (string, error) {
	return ms.each(parent, func(m Mapping, s string) (string, error) { return m.Parent(s) })
}

func (ms mappings) Order(path string) (string, error) {
	return ms.each(path, func(m Mapping, s string) (string, error) { return m.Order(s) })
}

// KeepsOrder reports whether every mapping keeps the order under its own form of the parent. Where
// a parent has no counterpart, any name is possible, so all names must keep their order.
func (ms mappings) KeepsOrder(parent string) bool {
	for _, m := range ms {
		if !KeepsOrder(m, parent) {
			return false
		}
		next, err := m.Parent(parent)
		if err != nil {
			next = ""
		}
		parent = next
	}
	return true
}

func (ms mappings) each(first string, step func(Mapping, string) (string, error)) (string, error) {
	at := first
	for _, m := range ms {
		var err error
		if at, err = step(m, at); err != nil {
			return "", asked(first, err)
		}
	}
	return at, nil
}

func (ms mappings) Field(path string) ([]string, error) {
	at := []string{path}
	for _, m := range ms {
		var next []string
		seen := map[string]bool{}
		for _, p := range at {
			paths, err := m.Field(p)
			if err != nil {
				return nil, asked(path, err)
			}
			for _, q := range paths {
				// Two fields of an inner version may map to one field.
				if !seen[q] {
					seen[q] = true
					next = append(next, q)
				}
			}
		}
		at = next
	}
	return at, nil
}

func (ms mappings) Compare(c Condition) ([]Condition, error) {
	at := []Condition{c}
	for _, m := range ms {
		var next []Condition
		for _, x := range at {
			cs, err := m.Compare(x)
			if err != nil {
				return nil, asked(c.Path, err)
			}
			next = append(next, cs...)
		}
		at = next
	}
	return at, nil
}
