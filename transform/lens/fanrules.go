package lens

// rules adds the conditions for writers of the children.
func (f *fan) rules(rule func(format string, args ...any)) {
	switch {
	case f.order != nil:
		rule("%s of a record of %s is an int or long from 0 that no other one of its parent has; places need not follow each other, so a new last one takes the greatest there is and one more (%s %s)", f.order, f.kind, f.verb(), f.field)
	case f.sorted():
		rule("records of %s have the order of their %s, which no two of one parent share (%s %s)", f.kind, f.id, f.verb(), f.field)
	}
	if f.parent != nil {
		rule("%s of a record of %s is the _id of a record that is there: write it before its records, and delete it after them or with them (%s %s)", f.parent, f.kind, f.verb(), f.field)
	}
	rule("the _id of a record of %s is what its fields say: %s (%s %s)", f.kind, f.key, f.verb(), f.field)
	if f.as != asObject && !f.present {
		rule("a record without any of %s comes back without %s: where readers of the old version need the empty %s, write an empty one into %s, or give the lens empty: present (%s %s)", f.kind, f.field, f.as, f.field, f.verb(), f.field)
	}
}
