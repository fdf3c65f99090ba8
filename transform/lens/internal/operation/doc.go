// Package operation implements the operations of a lens and runs them.
//
// An Op is one operation in one direction, and its Inverse is the same operation in the other
// direction. The near side is the version of the source record, and the far side is the version of
// the result. Compile makes a Program of a list of operations. It follows two sorts of values
// through the later operations: fields that only the far side has (Held), and values that the far
// side may write in its own form (Forms). Run applies the operations to a record and then restores
// both sorts from the target's record. It returns a transform.RecordError for a record that cannot
// be transformed. An operation accepts a value only if its inverse gives the same bytes again, so
// no value is lost without an error.
//
// Each applies a Program to the items of a list or map. CheckSequence refuses lists of operations
// whose reverse would be wrong. Mapping translates requests by the same operations. An Op that can
// map comparisons of changed values is also a Comparer.
//
// The package does not parse lenses. Package fanout has the operations on several records (Scatter,
// Collect). Package lens has the references to other kinds.
package operation
