package lens

import (
	"slices"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// op is one operation in one direction. Every op has an inverse. The reverse of a lens is the
// inverses in reverse order.
//
// trace defines how an op changes requests. An op that can do more is also a comparer, a spreader
// or a sorter (mapping.go). An op that keeps fields which only the far side has is a holder
// (program.go).
type op interface {
	// String returns the operation and its fields as the lens writes them, for errors.
	String() string
	apply(e *edit.Editor, root *edit.Node) error
	inverse() op
	// trace returns the path on the far side of a path on the near side.
	trace(p edit.Path) (edit.Path, fate)
	// takes returns the paths that only the near side has, makes the paths that only the far side
	// has.
	takes() []edit.Path
	makes() []edit.Path
	// changes returns the paths whose values change, each treated as one value.
	changes() []edit.Path
}

// fate is the effect of an operation on a path.
type fate int

const (
	kept      fate = iota // the same values, perhaps under another path
	converted             // still there, with other values
	covers                // fields within it change or move elsewhere
	spread                // its value is made into values at other paths
	gone                  // the far side does not have it
	clashes               // the near side cannot have it
)

var (
	_ op = (*rename)(nil)
	_ op = (*move)(nil)
	_ op = (*add)(nil)
	_ op = (*drop)(nil)
	_ op = (*convert)(nil)
	_ op = (*table)(nil)
)

// inverses returns the reverse of ops.
func inverses(ops []op) []op {
	out := make([]op, 0, len(ops))
	for _, o := range slices.Backward(ops) {
		out = append(out, o.inverse())
	}
	return out
}
