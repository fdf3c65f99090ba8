package operation

import (
	"fmt"
	"slices"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// CheckSequence returns an error if o cannot follow the operations before it. Examples are an
// operation on a field that an earlier one removed or added, and one that makes an existing field.
// Among the earlier operations on a field, the latest decides.
func CheckSequence(before []Op, o Op) error {
	for i, earlier := range before {
		// A field that is changed as one value must not be opened by another operation.
		for _, pair := range [][2]Op{{earlier, o}, {o, earlier}} {
			for _, field := range pair[0].Changes() {
				for _, p := range PathsOf(pair[1]) {
					if p.Under(field) && !p.Equal(field) {
						return fmt.Errorf("%s cannot be in %s, which is worked on as a single value (operation %d: %s)", p, field, i+1, earlier)
					}
				}
			}
		}
	}
	for _, read := range readsOf(o) {
		if err := checkRead(before, o, read); err != nil {
			return err
		}
	}
	for _, made := range o.Makes() {
		if err := checkMade(before, made); err != nil {
			return err
		}
	}
	if err := checkNumber(before, o); err != nil {
		return err
	}
	if err := checkNormal(before, o); err != nil {
		return err
	}
	return checkFilled(before, o)
}

// checkNormal refuses to normalize a value that an earlier operation made from another value. The
// reverse of that operation might not accept the normal form.
func checkNormal(before []Op, o Op) error {
	for i, earlier := range slices.Backward(before) {
		if !normalizes(o) {
			return nil
		}
		for _, field := range o.Changes() {
			// Follow the field back to the operation that made its value.
			was, f, at := field, kept, len(before)-1
			for ; at >= i && (f == kept || f == Converted && takesNormal(before[at+1], o)); at-- {
				was, f = before[at].Inverse().Trace(was)
			}
			if at < i && (f == Converted || f == Spread) && !takesNormal(earlier, o) {
				return fmt.Errorf("operation %d (%s) makes the values of %s, and its reverse may refuse normalized ones: write normalize before it", i+1, earlier, field)
			}
		}
	}
	return nil
}

// normalizes reports whether an operation normalizes a value.
func normalizes(o Op) bool {
	switch o := o.(type) {
	case *Normalize:
		return true
	case *Each:
		return slices.ContainsFunc(o.Run.Ops, normalizes)
	default:
		return false
	}
}

// takesNormal reports whether the reverse of earlier accepts every value that o makes.
func takesNormal(earlier, o Op) bool {
	n, whole := o.(*Normalize)
	switch earlier := earlier.(type) {
	case *Normalize, *unlisting:
		return whole
	case *Listing:
		return whole && !slices.ContainsFunc(n.Steps, func(s NormalStep) bool {
			return s != stepSort && s != stepNull && (s != stepDeduplicate || !earlier.Tidy)
		})
	case *Each:
		return !slices.ContainsFunc(earlier.Run.Ops, func(inner Op) bool { return !normalizes(inner) })
	default:
		return false
	}
}

// checkFilled refuses to move a field into an object after a default was added to it. The default
// hides whether the object was empty, and the reverse needs to know.
func checkFilled(before []Op, o Op) error {
	for i, earlier := range before {
		a, ok := earlier.(*Add)
		if !ok || a.Constant {
			continue
		}
		field, err := TraceKept(a.Field, before[i+1:])
		// A field of the record itself has no object that could be empty.
		if err != nil || !field.Nested() {
			continue
		}
		if object := field.Parent(); rebuilds(o, object) {
			for _, made := range o.Makes() {
				if made.Under(object) && !made.Equal(object) {
					return fmt.Errorf("it makes %s in an object to which operation %d (%s) has added a field; write it before that", made, i+1, earlier)
				}
			}
		}
	}
	return nil
}

func checkMade(before []Op, made edit.Path) error {
	for i, earlier := range slices.Backward(before) {
		for _, p := range earlier.Makes() {
			if made.Overlaps(p) {
				return fmt.Errorf("operation %d (%s) has made %s", i+1, earlier, p)
			}
		}
		if slices.ContainsFunc(earlier.Takes(), made.Under) {
			return nil // the name is free again
		}
		for _, p := range readsOf(earlier) {
			if p.Under(made) {
				return fmt.Errorf("operation %d (%s) works on %s, so the field exists", i+1, earlier, p)
			}
		}
	}
	return nil
}

// reader is an op that reads fields without changing them.
type reader interface{ Reads() []edit.Path }

// readsOf returns the paths whose values an operation uses.
func readsOf(o Op) []edit.Path {
	ps := slices.Concat(o.Takes(), o.Changes())
	if r, ok := o.(reader); ok {
		ps = append(ps, r.Reads()...)
	}
	return ps
}

// PathsOf returns the paths that an operation takes, changes, reads or makes.
func PathsOf(o Op) []edit.Path { return slices.Concat(readsOf(o), o.Makes()) }

// rebuilds reports whether an operation creates or removes objects at p or above.
func rebuilds(o Op, p edit.Path) bool {
	switch o.(type) {
	case *Move, *Calc, *KeyField:
		return slices.ContainsFunc(slices.Concat(o.Takes(), o.Makes()), func(q edit.Path) bool { return q.Under(p) })
	default:
		return false
	}
}

func checkRead(before []Op, o Op, read edit.Path) error {
	// Removing a field needs more care: its value must come back from the complement.
	_, dropped := o.(*Drop)
	normal, ok := o.(*Normalize)
	empties := ok && normal.removes()
	for i, earlier := range slices.Backward(before) {
		for _, p := range PathsOf(earlier) {
			// The complement of a whole object does not show which of its parts are elsewhere.
			if dropped && p.Under(read) && !p.Equal(read) {
				return fmt.Errorf("operation %d (%s) works within %s; remove only fields that no other operation uses", i+1, earlier, read)
			}
		}
		// The reverse would apply this operation to the default, which may have another type.
		if dropped && slices.ContainsFunc(earlier.Changes(), read.Equal) {
			return fmt.Errorf("operation %d (%s) changes %s; remove the field before it instead", i+1, earlier, read)
		}
		// The reverse must find the object of the removed field.
		if (dropped || empties) && read.Nested() && rebuilds(earlier, read.Parent()) {
			return fmt.Errorf("write it before operation %d (%s), which works on the same object", i+1, earlier)
		}
		for _, made := range earlier.Makes() {
			if !read.Under(made) {
				continue
			}
			if _, added := earlier.(*Add); added {
				return fmt.Errorf("%s was made by operation %d (%s); write it there in its final form", made, i+1, earlier)
			}
			if dropped {
				return fmt.Errorf("operation %d (%s) made %s; remove the field where it was before instead", i+1, earlier, made)
			}
			return nil
		}
		if slices.ContainsFunc(earlier.Takes(), read.Under) {
			return fmt.Errorf("%s is no longer there after operation %d (%s)", read, i+1, earlier)
		}
	}
	return nil
}
