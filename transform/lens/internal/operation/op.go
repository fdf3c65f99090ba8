package operation

import (
	"slices"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// Op is one operation in one direction. Every op has an inverse. The reverse of a lens is the
// inverses in reverse order.
//
// trace defines how an op changes requests. An op that can do more is also a comparer, a spreader
// or a sorter (mapping.go). An op that keeps fields which only the far side has is a holder
// (program.go).
type Op interface {
	// String returns the operation and its fields as the lens writes them, for errors.
	String() string
	Apply(e *edit.Editor, root *edit.Node) error
	Inverse() Op
	// Trace returns the path on the far side of a path on the near side.
	Trace(p edit.Path) (edit.Path, Fate)
	// Takes returns the paths that only the near side has, makes the paths that only the far side
	// has.
	Takes() []edit.Path
	Makes() []edit.Path
	// Changes returns the paths whose values change, each treated as one value.
	Changes() []edit.Path
}

// Fate is the effect of an operation on a path.
type Fate int

const (
	kept      Fate = iota // the same values, perhaps under another path
	Converted             // still there, with other values
	Covers                // fields within it change or move elsewhere
	Spread                // its value is made into values at other paths
	Gone                  // the far side does not have it
	Clashes               // the near side cannot have it
)

var (
	_ Op = (*Rename)(nil)
	_ Op = (*Move)(nil)
	_ Op = (*Add)(nil)
	_ Op = (*Drop)(nil)
	_ Op = (*Convert)(nil)
	_ Op = (*Table)(nil)
)

// Inverses returns the reverse of ops.
func Inverses(ops []Op) []Op {
	out := make([]Op, 0, len(ops))
	for _, o := range slices.Backward(ops) {
		out = append(out, o.Inverse())
	}
	return out
}
