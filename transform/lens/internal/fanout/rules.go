package fanout

// Rules calls rule with each condition that writers of the children must meet, as text for people.
func (f *Fan) Rules(rule func(format string, args ...any)) {
	switch {
	case f.Order != nil:
		rule("%s of a record of %s is an int or long from 0 that no other record of its parent has; gaps are allowed, so a new last record takes the greatest value plus one (%s %s)", f.Order, f.Kind, f.Verb(), f.Field)
	case f.Sorted():
		rule("records of %s are sorted by %s, which is unique among the records of one parent (%s %s)", f.Kind, f.ID, f.Verb(), f.Field)
	}
	if f.Parent != nil {
		rule("%s of a record of %s is the _id of an existing record: write that record before, and delete it after them or with them (%s %s)", f.Parent, f.Kind, f.Verb(), f.Field)
	}
	rule("the _id of a record of %s follows from its fields: %s (%s %s)", f.Kind, f.Key, f.Verb(), f.Field)
	if f.As != AsObject && !f.Present {
		rule("a record without any of %s comes back without %s: if readers of the old version need the empty %s, write an empty one into %s, or set empty: present in the lens (%s %s)", f.Kind, f.Field, f.As, f.Field, f.Verb(), f.Field)
	}
}
