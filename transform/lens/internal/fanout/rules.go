package fanout

// Rules calls rule with each condition that writers of the children must meet, as text for people.
func (f *Fan) Rules(rule func(format string, args ...any)) {
	switch {
	case f.Order != nil:
		rule("%s of a record of %s is an int or long from 0 that no other one of its parent has; places need not follow each other, so a new last one takes the greatest there is and one more (%s %s)", f.Order, f.Kind, f.Verb(), f.Field)
	case f.Sorted():
		rule("records of %s have the order of their %s, which no two of one parent share (%s %s)", f.Kind, f.ID, f.Verb(), f.Field)
	}
	if f.Parent != nil {
		rule("%s of a record of %s is the _id of a record that is there: write it before its records, and delete it after them or with them (%s %s)", f.Parent, f.Kind, f.Verb(), f.Field)
	}
	rule("the _id of a record of %s is what its fields say: %s (%s %s)", f.Kind, f.Key, f.Verb(), f.Field)
	if f.As != AsObject && !f.Present {
		rule("a record without any of %s comes back without %s: where readers of the old version need the empty %s, write an empty one into %s, or give the lens empty: present (%s %s)", f.Kind, f.Field, f.As, f.Field, f.Verb(), f.Field)
	}
}
