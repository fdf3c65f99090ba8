// Package operation has the operations of a lens and runs them.
//
// An Op is one operation in one direction, and Inverse is the same operation in the other. Compile
// makes a Program of a list: it follows every field that only the far side has through the later
// operations (held), and every value that the far side may write in a form of its own (forms). Run
// applies the operations to a record, restores both from the target's record, and returns a
// transform.RecordError for a record that cannot be transformed. An operation accepts a value only if
// its inverse gives the same bytes again. So nothing is lost without an error.
//
// Each applies a Program to the items of a list or map. CheckSequence refuses lists of operations
// whose reverse would be wrong. Mapping translates requests by the same operations: an Op whose
// values change is also a Comparer.
//
// The package does not parse lenses. Operations on several records (scatter, collect) and references
// to other kinds implement Op elsewhere.
package operation
